/* NVML: processes on a GPU, and its partitions (Multi-Instance GPU). */
#include "client.h"

#include <string.h>

#define NO_INSTANCE 0xffffffffU

typedef struct {
    unsigned pid;
    unsigned long long used_bytes;
    unsigned gpu_instance, compute_instance;
} nvmlProcessInfo_t;

static bool listed(const nvmlProcessInfo_t *list, unsigned count, unsigned pid) {
    for (unsigned place = 0; place < count; place++)
        if (list[place].pid == pid)
            return true;
    return false;
}

/* Whether a process is on what the call is about: any of the GPU's, or the partition's alone. */
static bool concerns(const struct call *call, const struct process *process) {
    if (call->partition < 0)
        return true;
    const struct partition *partition = &call->gpu.partitions[call->partition];
    return process->gpu_instance == partition->gpu_instance && process->compute_instance == partition->compute_instance;
}

static nvmlReturn_t list(enum function function, uint32_t mps, nvmlDevice_t device, unsigned *count,
                         nvmlProcessInfo_t *processes) {
    struct call call;
    nvmlReturn_t result = begin_any(function, device, &call);
    if (result != NVML_SUCCESS)
        return result;
    if (count == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if ((call.gpu.product.lacks & LACKS_PROCESSES) != 0)
        return NVML_ERROR_NOT_SUPPORTED;
    nvmlProcessInfo_t found[FAKE_PROCESSES + FAKE_ENGINES];
    unsigned number = 0;
    for (unsigned place = 0; place < call.gpu.process_count; place++) {
        const struct process *process = &call.gpu.processes[place];
        if (process->mps == mps && concerns(&call, process))
            found[number++] = (nvmlProcessInfo_t){.pid = process->pid,
                                                  .used_bytes = process->used_bytes,
                                                  .gpu_instance = process->gpu_instance,
                                                  .compute_instance = process->compute_instance};
    }
    for (unsigned slot = 0; mps == 0 && call.partition < 0 && slot < FAKE_ENGINES; slot++) {
        unsigned pid = call.gpu.engines[slot].pid;
        if (pid != 0 && !listed(found, number, pid))
            found[number++] = (nvmlProcessInfo_t){
                .pid = pid, .gpu_instance = NO_INSTANCE, .compute_instance = NO_INSTANCE};
    }
    result = hand_out(number, count);
    if (result == NVML_SUCCESS && processes != NULL)
        memcpy(processes, found, number * sizeof(*processes));
    return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                            nvmlProcessInfo_t *processes) {
    return list(FAKE_nvmlDeviceGetComputeRunningProcesses, 0, device, count, processes);
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned *count,
                                                            nvmlProcessInfo_t *processes) {
    return nvmlDeviceGetComputeRunningProcesses_v3(device, count, processes);
}

EXPORT nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                               nvmlProcessInfo_t *processes) {
    return list(FAKE_nvmlDeviceGetMPSComputeRunningProcesses, 1, device, count, processes);
}

/* Nobody draws pictures here. */
EXPORT nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                             nvmlProcessInfo_t *processes) {
    struct call call;
    nvmlReturn_t result = begin_any(FAKE_nvmlDeviceGetGraphicsRunningProcesses, device, &call);
    (void)processes;
    if (result == NVML_SUCCESS && count == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS)
        *count = 0;
    return result;
}

/* Partitions */

EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending) {
    struct call call;
    nvmlReturn_t result = begin(FAKE_nvmlDeviceGetMigMode, device, &call);
    if (result != NVML_SUCCESS)
        return result;
    if (current == NULL || pending == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    *current = call.gpu.mig_current;
    *pending = call.gpu.mig_pending;
    return NVML_SUCCESS;
}

GETTER(nvmlDeviceGetMaxMigDeviceCount, unsigned, FAKE_PARTITIONS)

EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index, nvmlDevice_t *partition) {
    struct call call;
    nvmlReturn_t result = begin(FAKE_nvmlDeviceGetMigDeviceHandleByIndex, device, &call);
    if (result != NVML_SUCCESS)
        return result;
    if (partition == NULL || index >= FAKE_PARTITIONS)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (call.gpu.mig_current == 0 || index >= call.gpu.partition_count)
        return NVML_ERROR_NOT_FOUND;
    *partition = &handles[call.index][1 + index];
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t partition, nvmlDevice_t *device) {
    struct call call;
    nvmlReturn_t result = begin_any(FAKE_nvmlDeviceGetDeviceHandleFromMigDeviceHandle, partition, &call);
    if (result != NVML_SUCCESS)
        return result;
    if (device == NULL || call.partition < 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    *device = &handles[call.index][0];
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned *answer) {
    struct call call;
    nvmlReturn_t result = begin_any(FAKE_nvmlDeviceIsMigDeviceHandle, device, &call);
    if (result == NVML_SUCCESS && answer == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS)
        *answer = call.partition >= 0;
    return result;
}

static nvmlReturn_t partition_of(enum function function, nvmlDevice_t device, struct partition *partition) {
    struct call call;
    nvmlReturn_t result = begin_any(function, device, &call);
    if (result != NVML_SUCCESS)
        return result;
    if (call.partition < 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    *partition = call.gpu.partitions[call.partition];
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned *id) {
    struct partition partition;
    nvmlReturn_t result = partition_of(FAKE_nvmlDeviceGetGpuInstanceId, device, &partition);
    if (result == NVML_SUCCESS && id == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS)
        *id = partition.gpu_instance;
    return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned *id) {
    struct partition partition;
    nvmlReturn_t result = partition_of(FAKE_nvmlDeviceGetComputeInstanceId, device, &partition);
    if (result == NVML_SUCCESS && id == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS)
        *id = partition.compute_instance;
    return result;
}
