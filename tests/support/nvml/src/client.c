/* This process's connection to the driver: initialised and shut down, calls begun and changes made. */
#define _GNU_SOURCE
#include "client.h"

#include <linux/capability.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

struct nvmlDevice_st handles[FAKE_GPUS][1 + FAKE_PARTITIONS];

/* Once mapped, the state stays mapped: threads may be in a call while another shuts down. */
struct store client = {.file = -1};

static pthread_mutex_t initialising = PTHREAD_MUTEX_INITIALIZER;
static unsigned references;
static uint64_t generation; /* of the driver that this process initialised */

nvmlReturn_t connected(void) {
    if (__atomic_load_n(&references, __ATOMIC_ACQUIRE) == 0)
        return NVML_ERROR_UNINITIALIZED;
    uint64_t loaded = __atomic_load_n(&client.state->generation, __ATOMIC_ACQUIRE);
    if (loaded == 0)
        return NVML_ERROR_DRIVER_NOT_LOADED;
    return loaded == __atomic_load_n(&generation, __ATOMIC_ACQUIRE) ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

nvmlReturn_t begin_system(enum function function) {
    nvmlReturn_t result = connected();
    return result != NVML_SUCCESS ? result : store_rule(&client, function, -1);
}

/* Starts a call on a GPU or a partition of it. */
nvmlReturn_t begin_any(enum function function, nvmlDevice_t device, struct call *call) {
    nvmlReturn_t result = connected();
    call->index = FAKE_GPUS;
    if (result != NVML_SUCCESS)
        return result;
    if (device < &handles[0][0] || device > &handles[FAKE_GPUS - 1][FAKE_PARTITIONS])
        return NVML_ERROR_INVALID_ARGUMENT;
    size_t place = (size_t)(device - &handles[0][0]);
    if (place / (1 + FAKE_PARTITIONS) >= __atomic_load_n(&client.state->gpu_count, __ATOMIC_ACQUIRE))
        return NVML_ERROR_INVALID_ARGUMENT;
    call->index = (unsigned)(place / (1 + FAKE_PARTITIONS));
    call->partition = (int)(place % (1 + FAKE_PARTITIONS)) - 1;
    result = store_rule(&client, function, (int)call->index);
    if (result != NVML_SUCCESS)
        return result;
    gpu_observe(&client, call->index, &call->gpu);
    if (call->gpu.lost != 0)
        return NVML_ERROR_GPU_IS_LOST;
    if (call->partition >= 0 && (call->gpu.mig_current == 0 || (unsigned)call->partition >= call->gpu.partition_count))
        return NVML_ERROR_NOT_FOUND;
    return NVML_SUCCESS;
}

/* Starts a call that only a whole GPU answers. */
nvmlReturn_t begin(enum function function, nvmlDevice_t device, struct call *call) {
    nvmlReturn_t result = begin_any(function, device, call);
    return result == NVML_SUCCESS && call->partition >= 0 ? NVML_ERROR_NOT_SUPPORTED : result;
}

static bool may_change(void) {
    switch (client.state->privileged) {
    case 0:
        return true;
    case 1: {
        /* As the kernel's module does: capable(CAP_SYS_ADMIN). */
        struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
        struct __user_cap_data_struct data[2];
        if (syscall(SYS_capget, &header, data) != 0)
            return false;
        return (data[CAP_TO_INDEX(CAP_SYS_ADMIN)].effective & CAP_TO_MASK(CAP_SYS_ADMIN)) != 0;
    }
    default:
        return false;
    }
}

/* Changes a setting under the lock; every attempt is logged. */
nvmlReturn_t set(enum function function, nvmlDevice_t device, uint32_t first, uint32_t second,
                 change_function *change) {
    struct call call;
    nvmlReturn_t result = begin(function, device, &call);
    if (call.index == FAKE_GPUS)
        return result;
    if (result == NVML_SUCCESS && !may_change())
        result = NVML_ERROR_NO_PERMISSION;
    if (!store_lock(&client)) /* another thread has just shut down */
        return NVML_ERROR_UNINITIALIZED;
    if (result == NVML_SUCCESS)
        result = connected(); /* the driver may have been reloaded while the call hung */
    if (result == NVML_SUCCESS) {
        struct gpu gpu;
        gpu_read(&client, call.index, &gpu);
        gpu_settle(&gpu, store_now(&client));
        result = change(&gpu, first, second);
        if (result == NVML_SUCCESS)
            gpu_write(&client, call.index, &gpu);
    }
    store_log(&client, call.index, function, first, second, result);
    store_unlock(&client);
    return result;
}

nvmlReturn_t copy_text(char *buffer, unsigned length, const char *text) {
    if (buffer == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (strlen(text) >= length)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    memcpy(buffer, text, strlen(text) + 1);
    return NVML_SUCCESS;
}

/* Hands out a list the way NVML does: a buffer too small is told the size that is needed. */
nvmlReturn_t hand_out(unsigned needed, unsigned *count) {
    unsigned room = *count;
    *count = needed;
    return room < needed ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

/* Becomes a client of the driver that is loaded now. Settings of a last client that died without a word go first. */
static nvmlReturn_t join(void) {
    nvmlReturn_t result = store_attach(&client, getenv("HELIOTROPE_FAKE_NVML"));
    if (result == NVML_SUCCESS && __atomic_load_n(&client.state->generation, __ATOMIC_ACQUIRE) == 0)
        result = NVML_ERROR_DRIVER_NOT_LOADED;
    if (result == NVML_SUCCESS)
        result = store_rule(&client, FAKE_nvmlInitWithFlags, -1);
    if (result == NVML_SUCCESS && !store_lock(&client))
        result = NVML_ERROR_UNKNOWN;
    if (result != NVML_SUCCESS) {
        store_detach(&client);
        return result;
    }
    __atomic_store_n(&generation, client.state->generation, __ATOMIC_RELEASE);
    if (store_alone(&client))
        store_revert(&client, false);
    store_join(&client);
    store_unlock(&client);
    return NVML_SUCCESS;
}

static void leave(void) {
    if (store_lock(&client)) {
        if (store_alone(&client))
            store_revert(&client, false);
        store_unlock(&client);
    }
    store_detach(&client);
}

EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    pthread_mutex_lock(&initialising);
    nvmlReturn_t result = NVML_SUCCESS;
    /* A client of a driver that is gone has to come again; its count of initialisations starts anew. */
    if (references > 0 && connected() != NVML_SUCCESS) {
        __atomic_store_n(&references, 0, __ATOMIC_RELEASE);
        store_detach(&client);
    }
    if (references == 0)
        result = join();
    if (result == NVML_SUCCESS)
        __atomic_store_n(&references, references + 1, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&initialising);
    return result;
}

EXPORT nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
EXPORT nvmlReturn_t nvmlInit(void) { return nvmlInitWithFlags(0); }

EXPORT nvmlReturn_t nvmlShutdown(void) {
    pthread_mutex_lock(&initialising);
    nvmlReturn_t result = references == 0 ? NVML_ERROR_UNINITIALIZED : store_rule(&client, FAKE_nvmlShutdown, -1);
    if (result == NVML_SUCCESS) {
        __atomic_store_n(&references, references - 1, __ATOMIC_RELEASE);
        if (references == 0)
            leave();
    }
    pthread_mutex_unlock(&initialising);
    return result;
}
