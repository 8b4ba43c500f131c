/* NVML: finding GPUs, and what they are. */
#include "client.h"

#include <stdio.h>
#include <string.h>

#define PERFORMANCE_FULL 0U
#define PERFORMANCE_IDLE 8U

typedef struct {
    char bus_id_legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
} nvmlPciInfo_t;

typedef struct {
    unsigned long long total, free, used;
} nvmlMemory_t;

typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count) {
    nvmlReturn_t result = begin_system(FAKE_nvmlDeviceGetCount);
    if (result == NVML_SUCCESS && count == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS)
        *count = __atomic_load_n(&client.state->gpu_count, __ATOMIC_ACQUIRE);
    return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetCount(unsigned *count) { return nvmlDeviceGetCount_v2(count); }

static nvmlReturn_t handle_of(enum function function, unsigned index, nvmlDevice_t *device) {
    struct call call;
    nvmlReturn_t result = begin_any(function, &handles[index][0], &call);
    if (result == NVML_SUCCESS)
        *device = &handles[index][0];
    return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device) {
    nvmlReturn_t result = connected();
    if (result != NVML_SUCCESS)
        return result;
    if (device == NULL || index >= __atomic_load_n(&client.state->gpu_count, __ATOMIC_ACQUIRE))
        return NVML_ERROR_INVALID_ARGUMENT;
    return handle_of(FAKE_nvmlDeviceGetHandleByIndex, index, device);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t *device) {
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    nvmlReturn_t result = connected();
    if (result != NVML_SUCCESS)
        return result;
    if (uuid == NULL || device == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    unsigned count = __atomic_load_n(&client.state->gpu_count, __ATOMIC_ACQUIRE);
    for (unsigned index = 0; index < count; index++) {
        struct gpu gpu;
        gpu_read(&client, index, &gpu);
        if (strcmp(gpu.uuid, uuid) == 0)
            return handle_of(FAKE_nvmlDeviceGetHandleByUUID, index, device);
        for (unsigned partition = 0; gpu.mig_current != 0 && partition < gpu.partition_count; partition++) {
            if (strcmp(gpu.partitions[partition].uuid, uuid) != 0)
                continue;
            result = handle_of(FAKE_nvmlDeviceGetHandleByUUID, index, device);
            if (result == NVML_SUCCESS)
                *device = &handles[index][1 + partition];
            return result;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device) {
    nvmlReturn_t result = connected();
    if (result != NVML_SUCCESS)
        return result;
    if (bus_id == NULL || device == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    unsigned count = __atomic_load_n(&client.state->gpu_count, __ATOMIC_ACQUIRE);
    for (unsigned index = 0; index < count; index++) {
        struct gpu gpu;
        gpu_read(&client, index, &gpu);
        if (strcmp(gpu.bus_id, bus_id) == 0)
            return handle_of(FAKE_nvmlDeviceGetHandleByPciBusId, index, device);
    }
    return NVML_ERROR_NOT_FOUND;
}

EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned length) {
    struct call call;
    nvmlReturn_t result = begin_any(FAKE_nvmlDeviceGetName, device, &call);
    return result != NVML_SUCCESS ? result : copy_text(name, length, call.gpu.product.name);
}

EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned length) {
    struct call call;
    nvmlReturn_t result = begin_any(FAKE_nvmlDeviceGetUUID, device, &call);
    if (result != NVML_SUCCESS)
        return result;
    return copy_text(uuid, length, call.partition < 0 ? call.gpu.uuid : call.gpu.partitions[call.partition].uuid);
}

GETTER(nvmlDeviceGetIndex, unsigned, call.index)
GETTER(nvmlDeviceGetMinorNumber, unsigned, call.index)
GETTER(nvmlDeviceGetPersistenceMode, unsigned, call.gpu.persistence)
GETTER(nvmlDeviceGetPerformanceState, unsigned,
       (gpu_running(&call.gpu).reasons & REASON_GPU_IDLE) != 0 ? PERFORMANCE_IDLE : PERFORMANCE_FULL)

static nvmlReturn_t change_persistence(struct gpu *gpu, uint32_t mode, uint32_t unused) {
    (void)unused;
    if (mode > 1)
        return NVML_ERROR_INVALID_ARGUMENT;
    gpu->persistence = mode;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceSetPersistenceMode(nvmlDevice_t device, unsigned mode) {
    return set(FAKE_nvmlDeviceSetPersistenceMode, device, mode, 0, change_persistence);
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *info) {
    struct call call;
    nvmlReturn_t result = begin(FAKE_nvmlDeviceGetPciInfo, device, &call);
    if (result != NVML_SUCCESS)
        return result;
    if (info == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    memset(info, 0, sizeof(*info));
    if (sscanf(call.gpu.bus_id, "%x:%x:%x", &info->domain, &info->bus, &info->device) != 3)
        return NVML_ERROR_UNKNOWN;
    snprintf(info->bus_id, sizeof(info->bus_id), "%s", call.gpu.bus_id);
    /* The legacy form has four digits of the domain; more of them are cut off in front. */
    snprintf(info->bus_id_legacy, sizeof(info->bus_id_legacy), "%04x:%02x:%02x.0", info->domain & 0xffffU,
             info->bus & 0xffU, info->device & 0xffU);
    return NVML_SUCCESS;
}

static uint64_t used_bytes(const struct gpu *gpu) {
    uint64_t used = 0;
    for (unsigned place = 0; place < gpu->process_count; place++)
        used += gpu->processes[place].used_bytes;
    return used < gpu->product.memory_bytes ? used : gpu->product.memory_bytes;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    struct call call;
    nvmlReturn_t result = begin(FAKE_nvmlDeviceGetMemoryInfo, device, &call);
    if (result != NVML_SUCCESS)
        return result;
    if (memory == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    memory->total = call.gpu.product.memory_bytes;
    memory->used = used_bytes(&call.gpu);
    memory->free = memory->total - memory->used;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    nvmlMemory_t plain = {0};
    nvmlReturn_t result = nvmlDeviceGetMemoryInfo(device, &plain);
    if (result != NVML_SUCCESS)
        return result;
    if (memory == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (memory->version != (sizeof(*memory) | 2U << 24))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    memory->total = plain.total;
    memory->used = plain.used;
    memory->free = plain.free;
    memory->reserved = 0;
    return NVML_SUCCESS;
}
