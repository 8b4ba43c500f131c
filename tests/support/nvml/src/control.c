/*
 * What tests do to the state beside NVML: they build nodes, look at what the driver holds (which NVML does not tell),
 * change circumstances, and make calls fail or hang. `node.py` wraps it. Each function takes a store of its own, so a
 * test may be a client of NVML at the same time.
 */
#define _GNU_SOURCE
#include "state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

#define FAKE_NAME(name) #name,
static const char *const functions[] = {FAKE_FUNCTIONS(FAKE_NAME)};

/* A GPU at one moment, as `node.py` reads it. */
struct observation {
    char uuid[48];
    uint32_t sm_lowest_mhz, sm_highest_mhz, memory_lowest_mhz, memory_highest_mhz, limit_milliwatts, persistence;
    uint32_t sm_mhz, memory_mhz, milliwatts, utilization_percent, temperature, engines;
    uint64_t reasons, millijoules, picojoules;
};

enum circumstance {
    CIRCUMSTANCE_LOST,
    CIRCUMSTANCE_LOAD_PERMILLE,
    CIRCUMSTANCE_SLOWED_TO_MHZ,
    CIRCUMSTANCE_SLOWED_REASONS,
    CIRCUMSTANCE_TEMPERATURE,
    CIRCUMSTANCE_MIG_CURRENT,
    CIRCUMSTANCE_MIG_PENDING,
    CIRCUMSTANCE_PERSISTENCE,
    CIRCUMSTANCE_LACKS
};

EXPORT nvmlReturn_t heliotropeFakeCreate(const char *path, const char *driver_version) {
    return store_create(path, driver_version);
}

EXPORT struct store *heliotropeFakeOpen(const char *path) {
    struct store *store = malloc(sizeof(*store));
    if (store != NULL && store_open(store, path) != NVML_SUCCESS) {
        free(store);
        return NULL;
    }
    return store;
}

EXPORT void heliotropeFakeClose(struct store *store) {
    store_close(store);
    free(store);
}

/* Sizes of what Python mirrors, so that it can tell whether it does so rightly. */
EXPORT unsigned heliotropeFakeSize(unsigned which) {
    const unsigned sizes[] = {sizeof(struct product), sizeof(struct observation), sizeof(struct process),
                              sizeof(struct partition), sizeof(struct write)};
    return which < sizeof(sizes) / sizeof(sizes[0]) ? sizes[which] : 0;
}

EXPORT int heliotropeFakeFunction(const char *name) {
    for (int function = 0; function < FAKE_FUNCTION_COUNT; function++)
        if (strcmp(functions[function], name) == 0)
            return function;
    return -1;
}

EXPORT const char *heliotropeFakeFunctionName(unsigned function) {
    return function < FAKE_FUNCTION_COUNT ? functions[function] : "";
}

EXPORT bool heliotropeFakeLock(struct store *store) { return store_lock(store); }
EXPORT void heliotropeFakeUnlock(struct store *store) { store_unlock(store); }

EXPORT int heliotropeFakeAddGpu(struct store *store, const struct product *product, const char *uuid) {
    if (product->lowest_mhz == 0 || product->highest_mhz < product->lowest_mhz || product->step_mhz == 0 ||
        (product->highest_mhz - product->lowest_mhz) % product->step_mhz != 0 ||
        product->memory_clock_count > FAKE_MEMORY_CLOCKS || !store_lock(store))
        return -1;
    unsigned index = store->state->gpu_count;
    if (index < FAKE_GPUS) {
        struct gpu gpu = {.product = *product, .persistence = 1, .since_ns = store_now(store)};
        snprintf(gpu.uuid, sizeof(gpu.uuid), "%s", uuid);
        snprintf(gpu.bus_id, sizeof(gpu.bus_id), "00000000:%02X:00.0", (0x10 + index) & 0xffU);
        gpu_defaults(&gpu);
        gpu_write(store, index, &gpu);
        __atomic_store_n(&store->state->gpu_count, index + 1, __ATOMIC_RELEASE);
    }
    store_unlock(store);
    return index < FAKE_GPUS ? (int)index : -1;
}

EXPORT unsigned heliotropeFakeCount(struct store *store) {
    return __atomic_load_n(&store->state->gpu_count, __ATOMIC_ACQUIRE);
}

EXPORT nvmlReturn_t heliotropeFakeObserve(struct store *store, unsigned index, struct observation *observation) {
    struct gpu gpu;
    if (index >= heliotropeFakeCount(store))
        return NVML_ERROR_INVALID_ARGUMENT;
    /* Clients may have died without a word: their settings go with the last of them. */
    gpu_read(store, index, &gpu);
    if (gpu.persistence == 0 && store_alone(store) && store_lock(store)) {
        if (store_alone(store)) /* nobody came while the lock was awaited */
            store_revert(store, false);
        store_unlock(store);
    }
    gpu_observe(store, index, &gpu);
    gpu_settle(&gpu, store_now(store));
    struct running running = gpu_running(&gpu);
    *observation = (struct observation){
        .sm_lowest_mhz = gpu.sm_lowest_mhz,
        .sm_highest_mhz = gpu.sm_highest_mhz,
        .memory_lowest_mhz = gpu.memory_lowest_mhz,
        .memory_highest_mhz = gpu.memory_highest_mhz,
        .limit_milliwatts = gpu.limit_milliwatts,
        .persistence = gpu.persistence,
        .sm_mhz = running.sm_mhz,
        .memory_mhz = running.memory_mhz,
        .milliwatts = running.milliwatts,
        .utilization_percent = running.utilization_percent,
        .temperature = running.temperature,
        .reasons = running.reasons,
        .millijoules = gpu.millijoules,
        .picojoules = gpu.picojoules,
    };
    memcpy(observation->uuid, gpu.uuid, sizeof(gpu.uuid));
    for (unsigned slot = 0; slot < FAKE_ENGINES; slot++)
        observation->engines += gpu.engines[slot].pid != 0;
    return NVML_SUCCESS;
}

/* Locks the store and reads the GPU, settled; the caller changes it and calls `finish`. */
static bool start(struct store *store, unsigned index, struct gpu *gpu) {
    if (index >= heliotropeFakeCount(store) || !store_lock(store))
        return false;
    gpu_read(store, index, gpu);
    gpu_settle(gpu, store_now(store));
    return true;
}

static void finish(struct store *store, unsigned index, const struct gpu *gpu) {
    gpu_write(store, index, gpu);
    store_unlock(store);
}

EXPORT nvmlReturn_t heliotropeFakeCircumstance(struct store *store, unsigned index, unsigned which, uint64_t value) {
    struct gpu gpu;
    if (which > CIRCUMSTANCE_LACKS || !start(store, index, &gpu))
        return NVML_ERROR_INVALID_ARGUMENT;
    switch ((enum circumstance)which) {
    case CIRCUMSTANCE_LOST:
        gpu.lost = (uint32_t)value;
        break;
    case CIRCUMSTANCE_LOAD_PERMILLE:
        gpu.load_permille = (uint32_t)value;
        break;
    case CIRCUMSTANCE_SLOWED_TO_MHZ:
        gpu.slowed_to_mhz = (uint32_t)value;
        break;
    case CIRCUMSTANCE_SLOWED_REASONS:
        gpu.slowed_reasons = value;
        break;
    case CIRCUMSTANCE_TEMPERATURE:
        gpu.temperature = (uint32_t)value;
        break;
    case CIRCUMSTANCE_MIG_CURRENT:
        gpu.mig_current = (uint32_t)value;
        break;
    case CIRCUMSTANCE_MIG_PENDING:
        gpu.mig_pending = (uint32_t)value;
        break;
    case CIRCUMSTANCE_PERSISTENCE:
        gpu.persistence = (uint32_t)value;
        break;
    case CIRCUMSTANCE_LACKS:
        gpu.product.lacks = (uint32_t)value;
        break;
    }
    finish(store, index, &gpu);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t heliotropeFakeProcesses(struct store *store, unsigned index, const struct process *processes,
                                            unsigned count) {
    struct gpu gpu;
    if (count > FAKE_PROCESSES || !start(store, index, &gpu))
        return NVML_ERROR_INVALID_ARGUMENT;
    memcpy(gpu.processes, processes, count * sizeof(*processes));
    gpu.process_count = count;
    finish(store, index, &gpu);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t heliotropeFakePartitions(struct store *store, unsigned index, const struct partition *partitions,
                                             unsigned count) {
    struct gpu gpu;
    if (count > FAKE_PARTITIONS || !start(store, index, &gpu))
        return NVML_ERROR_INVALID_ARGUMENT;
    memcpy(gpu.partitions, partitions, count * sizeof(*partitions));
    gpu.partition_count = count;
    finish(store, index, &gpu);
    return NVML_SUCCESS;
}

/* Another program of the administrator's changes a setting; it is logged as the calling process's. */
EXPORT nvmlReturn_t heliotropeFakeForeign(struct store *store, unsigned index, unsigned function, uint32_t first,
                                          uint32_t second) {
    struct gpu gpu;
    if (!start(store, index, &gpu))
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t result = NVML_SUCCESS;
    switch (function) {
    case FAKE_nvmlDeviceSetGpuLockedClocks:
        gpu_lock_sm(&gpu, first, second);
        break;
    case FAKE_nvmlDeviceResetGpuLockedClocks:
        gpu.sm_lowest_mhz = gpu.sm_highest_mhz = 0;
        break;
    case FAKE_nvmlDeviceSetMemoryLockedClocks:
        gpu_lock_memory(&gpu, first, second);
        break;
    case FAKE_nvmlDeviceResetMemoryLockedClocks:
        gpu.memory_lowest_mhz = gpu.memory_highest_mhz = 0;
        break;
    case FAKE_nvmlDeviceSetPowerManagementLimit:
        gpu.limit_milliwatts = first;
        break;
    default:
        result = NVML_ERROR_INVALID_ARGUMENT;
    }
    if (result == NVML_SUCCESS) {
        store_log(store, index, function, first, second, result);
        gpu_write(store, index, &gpu);
    }
    store_unlock(store);
    return result;
}

/* Makes calls fail with a code, or hang until the rule is removed. Returns the rule's number, or -1. */
EXPORT int heliotropeFakeAddRule(struct store *store, int function, int gpu, unsigned code, unsigned hang, int skip,
                                 int count) {
    if (function >= (int)FAKE_FUNCTION_COUNT || !store_lock(store))
        return -1;
    int number = -1;
    for (unsigned place = 0; number < 0 && place < FAKE_RULES; place++) {
        struct rule *rule = &store->state->rules[place];
        if (rule->state != RULE_FREE)
            continue;
        *rule = (struct rule){.function = function,
                              .gpu = gpu,
                              .hang = hang,
                              .code = code,
                              .skip = skip,
                              .remaining = count,
                              .serial = ++store->state->rule_count};
        __atomic_store_n(&rule->state, RULE_ACTIVE, __ATOMIC_RELEASE);
        number = (int)place;
    }
    store_unlock(store);
    return number;
}

EXPORT void heliotropeFakeRemoveRule(struct store *store, unsigned number) {
    if (number < FAKE_RULES)
        __atomic_store_n(&store->state->rules[number].state, RULE_FREE, __ATOMIC_RELEASE);
}

/* How many calls hang because of this rule, those included whose process was killed meanwhile. */
EXPORT unsigned heliotropeFakeWaiting(struct store *store, unsigned number) {
    return number < FAKE_RULES ? __atomic_load_n(&store->state->rules[number].waiting, __ATOMIC_ACQUIRE) : 0;
}

EXPORT uint64_t heliotropeFakeCalls(struct store *store, unsigned function) {
    return function < FAKE_FUNCTION_COUNT ? __atomic_load_n(&store->state->calls[function], __ATOMIC_RELAXED) : 0;
}

EXPORT uint64_t heliotropeFakeWriteCount(struct store *store) {
    return __atomic_load_n(&store->state->write_count, __ATOMIC_ACQUIRE);
}

/* Copies writes from number `first` on; returns how many. The log forgets the oldest beyond FAKE_WRITES. */
EXPORT unsigned heliotropeFakeWrites(struct store *store, uint64_t first, struct write *writes, unsigned room) {
    uint64_t count = heliotropeFakeWriteCount(store);
    unsigned copied = 0;
    if (count > FAKE_WRITES && first < count - FAKE_WRITES)
        first = count - FAKE_WRITES;
    for (; first < count && copied < room; first++)
        writes[copied++] = store->state->writes[first % FAKE_WRITES];
    return copied;
}

EXPORT void heliotropeFakePrivileged(struct store *store, unsigned who) {
    __atomic_store_n(&store->state->privileged, who, __ATOMIC_RELEASE);
}

/* Loads the driver anew, as after a reboot: default settings, counters at zero, clients must come again. */
EXPORT nvmlReturn_t heliotropeFakeReload(struct store *store) {
    if (!store_lock(store))
        return NVML_ERROR_UNKNOWN;
    store_revert(store, true);
    __atomic_store_n(&store->state->generation, ++store->state->loads, __ATOMIC_RELEASE);
    store_unlock(store);
    return NVML_SUCCESS;
}

EXPORT void heliotropeFakeUnload(struct store *store) {
    __atomic_store_n(&store->state->generation, 0, __ATOMIC_RELEASE);
}

/* Lets time stand still from now on (1), or go on (0). */
EXPORT nvmlReturn_t heliotropeFakeStandStill(struct store *store, unsigned still) {
    if (!store_lock(store))
        return NVML_ERROR_UNKNOWN;
    uint64_t now = store_now(store);
    uint64_t next = still != 0 ? now : monotonic_now();
    for (unsigned index = 0; index < store->state->gpu_count; index++) {
        struct gpu gpu;
        gpu_read(store, index, &gpu);
        gpu_settle(&gpu, now);
        gpu.since_ns = next;
        gpu_write(store, index, &gpu);
    }
    __atomic_store_n(&store->state->manual_ns, next, __ATOMIC_RELEASE);
    __atomic_store_n(&store->state->manual, still, __ATOMIC_RELEASE);
    store_unlock(store);
    return NVML_SUCCESS;
}

EXPORT void heliotropeFakeAdvance(struct store *store, uint64_t nanoseconds) {
    __atomic_add_fetch(&store->state->manual_ns, nanoseconds, __ATOMIC_ACQ_REL);
}
