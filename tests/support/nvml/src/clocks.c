/* NVML: clocks, their locks, and what holds them down. */
#include "client.h"

#include <string.h>

/* Clocks 0 (graphics) and 1 (SM) are one here. */
#define CLOCK_MEMORY 2U
#define CLOCK_VIDEO 3U
#define CLOCK_LIMIT_TDP 0xffffff01U
#define CLOCK_LIMIT_UNLIMITED 0xffffff02U
#define SUPPORTED_REASONS 0x1ffULL
#define POLICY_POWER 0U
#define POLICY_THERMAL 1U

typedef struct {
    unsigned long long reference_us, nanoseconds;
} nvmlViolationTime_t;

EXPORT nvmlReturn_t nvmlDeviceGetSupportedMemoryClocks(nvmlDevice_t device, unsigned *count, unsigned *clocks) {
    struct call call;
    nvmlReturn_t result = begin(FAKE_nvmlDeviceGetSupportedMemoryClocks, device, &call);
    if (result != NVML_SUCCESS)
        return result;
    if (count == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    const struct product *product = &call.gpu.product;
    if (product->memory_clock_count == 0)
        return NVML_ERROR_NOT_SUPPORTED;
    result = hand_out(product->memory_clock_count, count);
    if (result == NVML_SUCCESS && clocks != NULL)
        memcpy(clocks, product->memory_mhz, product->memory_clock_count * sizeof(*clocks));
    return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetSupportedGraphicsClocks(nvmlDevice_t device, unsigned memory_mhz, unsigned *count,
                                                         unsigned *clocks) {
    struct call call;
    nvmlReturn_t result = begin(FAKE_nvmlDeviceGetSupportedGraphicsClocks, device, &call);
    if (result != NVML_SUCCESS)
        return result;
    if (count == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    const struct product *product = &call.gpu.product;
    bool known = false;
    for (unsigned place = 0; place < product->memory_clock_count; place++)
        known = known || product->memory_mhz[place] == memory_mhz;
    if (!known)
        return product->memory_clock_count == 0 ? NVML_ERROR_NOT_SUPPORTED : NVML_ERROR_NOT_FOUND;
    result = hand_out(clock_count(product), count);
    if (result == NVML_SUCCESS && clocks != NULL)
        for (unsigned place = 0; place < *count; place++)
            clocks[place] = product->highest_mhz - place * product->step_mhz;
    return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, unsigned type, unsigned *mhz) {
    struct call call;
    nvmlReturn_t result = begin(FAKE_nvmlDeviceGetClockInfo, device, &call);
    if (result != NVML_SUCCESS)
        return result;
    if (mhz == NULL || type > CLOCK_VIDEO)
        return NVML_ERROR_INVALID_ARGUMENT;
    struct running running = gpu_running(&call.gpu);
    *mhz = type == CLOCK_MEMORY ? running.memory_mhz : running.sm_mhz; /* video is taken to follow the SMs */
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, unsigned type, unsigned *mhz) {
    struct call call;
    nvmlReturn_t result = begin(FAKE_nvmlDeviceGetMaxClockInfo, device, &call);
    if (result != NVML_SUCCESS)
        return result;
    if (mhz == NULL || type > CLOCK_VIDEO)
        return NVML_ERROR_INVALID_ARGUMENT;
    *mhz = type == CLOCK_MEMORY ? call.gpu.product.memory_mhz[0] : call.gpu.product.highest_mhz;
    return NVML_SUCCESS;
}

static bool symbolic(uint32_t mhz) { return mhz == CLOCK_LIMIT_TDP || mhz == CLOCK_LIMIT_UNLIMITED; }

static nvmlReturn_t change_sm_lock(struct gpu *gpu, uint32_t lowest, uint32_t highest) {
    if ((gpu->product.lacks & LACKS_SM_LOCK) != 0)
        return NVML_ERROR_NOT_SUPPORTED;
    if (symbolic(lowest) && symbolic(highest)) {
        /* The TDP clock is not modelled as one of its own: it is the highest. */
        gpu_lock_sm(gpu, lowest == CLOCK_LIMIT_TDP ? gpu->product.highest_mhz : 0, gpu->product.highest_mhz);
        if (lowest == CLOCK_LIMIT_UNLIMITED && highest == CLOCK_LIMIT_UNLIMITED)
            gpu->sm_lowest_mhz = gpu->sm_highest_mhz = 0;
        return NVML_SUCCESS;
    }
    if (symbolic(lowest) || symbolic(highest) || lowest > highest)
        return NVML_ERROR_INVALID_ARGUMENT;
    gpu_lock_sm(gpu, lowest, highest);
    return NVML_SUCCESS;
}

static nvmlReturn_t change_sm_reset(struct gpu *gpu, uint32_t first, uint32_t second) {
    (void)first;
    (void)second;
    if ((gpu->product.lacks & LACKS_SM_LOCK) != 0)
        return NVML_ERROR_NOT_SUPPORTED;
    gpu->sm_lowest_mhz = gpu->sm_highest_mhz = 0;
    return NVML_SUCCESS;
}

static nvmlReturn_t change_memory_lock(struct gpu *gpu, uint32_t lowest, uint32_t highest) {
    if ((gpu->product.lacks & LACKS_MEMORY_LOCK) != 0)
        return NVML_ERROR_NOT_SUPPORTED;
    if (lowest > highest)
        return NVML_ERROR_INVALID_ARGUMENT;
    gpu_lock_memory(gpu, lowest, highest);
    return NVML_SUCCESS;
}

static nvmlReturn_t change_memory_reset(struct gpu *gpu, uint32_t first, uint32_t second) {
    (void)first;
    (void)second;
    if ((gpu->product.lacks & LACKS_MEMORY_LOCK) != 0)
        return NVML_ERROR_NOT_SUPPORTED;
    gpu->memory_lowest_mhz = gpu->memory_highest_mhz = 0;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceSetGpuLockedClocks(nvmlDevice_t device, unsigned lowest, unsigned highest) {
    return set(FAKE_nvmlDeviceSetGpuLockedClocks, device, lowest, highest, change_sm_lock);
}

EXPORT nvmlReturn_t nvmlDeviceResetGpuLockedClocks(nvmlDevice_t device) {
    return set(FAKE_nvmlDeviceResetGpuLockedClocks, device, 0, 0, change_sm_reset);
}

EXPORT nvmlReturn_t nvmlDeviceSetMemoryLockedClocks(nvmlDevice_t device, unsigned lowest, unsigned highest) {
    return set(FAKE_nvmlDeviceSetMemoryLockedClocks, device, lowest, highest, change_memory_lock);
}

EXPORT nvmlReturn_t nvmlDeviceResetMemoryLockedClocks(nvmlDevice_t device) {
    return set(FAKE_nvmlDeviceResetMemoryLockedClocks, device, 0, 0, change_memory_reset);
}

GETTER(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, gpu_running(&call.gpu).reasons)
GETTER(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, gpu_running(&call.gpu).reasons)
GETTER(nvmlDeviceGetSupportedClocksEventReasons, unsigned long long, SUPPORTED_REASONS)
GETTER(nvmlDeviceGetSupportedClocksThrottleReasons, unsigned long long, SUPPORTED_REASONS)

EXPORT nvmlReturn_t nvmlDeviceGetViolationStatus(nvmlDevice_t device, unsigned policy, nvmlViolationTime_t *violation) {
    struct call call;
    nvmlReturn_t result = begin(FAKE_nvmlDeviceGetViolationStatus, device, &call);
    if (result != NVML_SUCCESS)
        return result;
    if (violation == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    uint64_t now = store_now(&client);
    gpu_settle(&call.gpu, now);
    violation->reference_us = now / 1000;
    switch (policy) {
    case POLICY_POWER:
        violation->nanoseconds = call.gpu.power_violation_ns;
        return NVML_SUCCESS;
    case POLICY_THERMAL:
        violation->nanoseconds = call.gpu.thermal_violation_ns;
        return NVML_SUCCESS;
    default:
        return NVML_ERROR_NOT_SUPPORTED;
    }
}
