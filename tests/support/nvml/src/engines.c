/* Beside NVML: emulated engines, as clients of the driver like any other. */
#include "client.h"

#include <string.h>

/* The index of the GPU with this UUID, or FAKE_GPUS. */
static unsigned index_of(const char *uuid) {
    unsigned count = __atomic_load_n(&client.state->gpu_count, __ATOMIC_ACQUIRE);
    for (unsigned index = 0; uuid != NULL && index < count; index++) {
        struct gpu gpu;
        gpu_read(&client, index, &gpu);
        if (strcmp(gpu.uuid, uuid) == 0)
            return index;
    }
    return FAKE_GPUS;
}

/* Finds the GPU, locks the store and reads; on success the caller writes what it made of it and unlocks. */
static nvmlReturn_t engine_begin(const char *uuid, unsigned pid, unsigned *index, unsigned *slot, struct gpu *gpu) {
    nvmlReturn_t result = connected();
    if (result != NVML_SUCCESS)
        return result;
    if (pid == 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    *index = index_of(uuid);
    if (*index == FAKE_GPUS)
        return NVML_ERROR_NOT_FOUND;
    gpu_observe(&client, *index, gpu);
    if (gpu->lost != 0)
        return NVML_ERROR_GPU_IS_LOST;
    if (!store_lock(&client)) /* another thread has just shut down */
        return NVML_ERROR_UNINITIALIZED;
    result = connected();
    if (result != NVML_SUCCESS) {
        store_unlock(&client);
        return result;
    }
    gpu_read(&client, *index, gpu);
    for (*slot = 0; *slot < FAKE_ENGINES; (*slot)++)
        if (gpu->engines[*slot].pid == pid && (client.claims[*index] & 1U << *slot) != 0)
            break;
    return NVML_SUCCESS;
}

/*
 * The calling process serves on this GPU and says itself, with heliotropeFakeDraw, what it draws. From now on the
 * energy counter moves by that alone. `pid` is listed as a compute process. Ends with heliotropeFakeDetach, with
 * nvmlShutdown, or with the process, however that ends.
 */
EXPORT nvmlReturn_t heliotropeFakeAttach(const char *uuid, unsigned pid) {
    unsigned index, slot;
    struct gpu gpu;
    nvmlReturn_t result = engine_begin(uuid, pid, &index, &slot, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    if (slot == FAKE_ENGINES) {
        for (slot = 0; slot < FAKE_ENGINES; slot++)
            if (gpu.engines[slot].pid == 0 && engine_claim(&client, index, slot))
                break;
        if (slot == FAKE_ENGINES) {
            result = NVML_ERROR_INSUFFICIENT_SIZE;
        } else {
            gpu_settle(&gpu, store_now(&client));
            gpu.engines[slot] = (struct engine){.pid = pid};
            gpu_write(&client, index, &gpu);
        }
    }
    store_unlock(&client);
    return result;
}

EXPORT nvmlReturn_t heliotropeFakeDetach(const char *uuid, unsigned pid) {
    unsigned index, slot;
    struct gpu gpu;
    nvmlReturn_t result = engine_begin(uuid, pid, &index, &slot, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    if (slot == FAKE_ENGINES) {
        result = NVML_ERROR_NOT_FOUND;
    } else {
        gpu_settle(&gpu, store_now(&client));
        memset(&gpu.engines[slot], 0, sizeof(gpu.engines[slot]));
        gpu_write(&client, index, &gpu);
        engine_release(&client, index, slot);
    }
    store_unlock(&client);
    return result;
}

/*
 * Adds what was drawn since the last call to the energy counter. `milliwatts` is the power that the GPU shows from now
 * on; `busy_milliwatts` at `busy_mhz` is what the work draws while it runs (0: as said last), from which follows how far
 * a power limit holds the clock down.
 */
EXPORT nvmlReturn_t heliotropeFakeDraw(const char *uuid, unsigned pid, unsigned long long millijoules,
                                       unsigned milliwatts, unsigned busy_milliwatts, unsigned busy_mhz,
                                       unsigned utilization_percent) {
    unsigned index, slot;
    struct gpu gpu;
    nvmlReturn_t result = engine_begin(uuid, pid, &index, &slot, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    if (slot == FAKE_ENGINES) {
        result = NVML_ERROR_NOT_FOUND;
    } else if (utilization_percent > 100 || (busy_milliwatts != 0 && busy_mhz == 0)) {
        result = NVML_ERROR_INVALID_ARGUMENT;
    } else {
        struct engine *engine = &gpu.engines[slot];
        gpu_settle(&gpu, store_now(&client));
        gpu.millijoules += millijoules;
        engine->milliwatts = milliwatts;
        engine->utilization_percent = utilization_percent;
        if (busy_milliwatts != 0) {
            engine->busy_milliwatts = busy_milliwatts;
            engine->busy_mhz = busy_mhz;
        }
        gpu_write(&client, index, &gpu);
    }
    store_unlock(&client);
    return result;
}
