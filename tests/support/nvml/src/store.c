/* The state file: opened, mapped, locked and changed so that no process can leave it locked or half changed. */
#define _GNU_SOURCE
#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Locks are the kernel's locks of an open file (F_OFD_SETLK): they end with their process, however it ends, and know no
 * pids, so containers with pid namespaces of their own share them. Each has a byte of its own, beyond the state. */
enum lock_byte { BYTE_WRITERS = 1 << 30, BYTE_CLIENTS = BYTE_WRITERS + 1, BYTE_ENGINES = BYTE_WRITERS + 2 };

static const struct timespec HANG_POLL = {.tv_sec = 0, .tv_nsec = 5000000};

/* Among this process's own threads, which share the open file. */
static pthread_mutex_t threads = PTHREAD_MUTEX_INITIALIZER;

static void before_fork(void) { pthread_mutex_lock(&threads); }
static void after_fork(void) { pthread_mutex_unlock(&threads); }

__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(before_fork, after_fork, after_fork); }

static int lock_byte(int file, int command, short type, off_t byte) {
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
    int result;
    do
        result = fcntl(file, command, &lock);
    while (result == -1 && errno == EINTR);
    if (result == 0 && command == F_OFD_GETLK)
        return lock.l_type == F_UNLCK ? 0 : 1;
    return result;
}

uint64_t monotonic_now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000ULL + (uint64_t)time.tv_nsec;
}

uint64_t store_now(const struct store *store) {
    if (__atomic_load_n(&store->state->manual, __ATOMIC_ACQUIRE) != 0)
        return __atomic_load_n(&store->state->manual_ns, __ATOMIC_ACQUIRE);
    return monotonic_now();
}

nvmlReturn_t store_create(const char *path, const char *driver_version) {
    int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file < 0)
        return NVML_ERROR_UNKNOWN;
    if (fchmod(file, 0666) != 0 || ftruncate(file, sizeof(struct state)) != 0) {
        close(file);
        return NVML_ERROR_UNKNOWN;
    }
    struct state *state = mmap(NULL, sizeof(struct state), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (state == MAP_FAILED)
        return NVML_ERROR_UNKNOWN;
    state->layout = FAKE_LAYOUT;
    state->size = sizeof(struct state);
    state->generation = state->loads = 1;
    snprintf(state->driver_version, sizeof(state->driver_version), "%s", driver_version);
    __atomic_store_n(&state->magic, FAKE_MAGIC, __ATOMIC_RELEASE);
    munmap(state, sizeof(struct state));
    return NVML_SUCCESS;
}

nvmlReturn_t store_open(struct store *store, const char *path) {
    struct stat status;
    memset(store, 0, sizeof(*store));
    store->file = -1;
    if (path == NULL || strlen(path) >= sizeof(store->path))
        return NVML_ERROR_DRIVER_NOT_LOADED;
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0)
        return NVML_ERROR_DRIVER_NOT_LOADED;
    if (fstat(file, &status) != 0 || status.st_size != (off_t)sizeof(struct state)) {
        close(file);
        return NVML_ERROR_LIB_RM_VERSION_MISMATCH;
    }
    struct state *state = mmap(NULL, sizeof(struct state), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (state == MAP_FAILED) {
        close(file);
        return NVML_ERROR_UNKNOWN;
    }
    if (__atomic_load_n(&state->magic, __ATOMIC_ACQUIRE) != FAKE_MAGIC || state->layout != FAKE_LAYOUT ||
        state->size != sizeof(struct state)) {
        munmap(state, sizeof(struct state));
        close(file);
        return NVML_ERROR_LIB_RM_VERSION_MISMATCH;
    }
    store->state = state;
    store->file = file;
    store->device = (uint64_t)status.st_dev;
    store->inode = (uint64_t)status.st_ino;
    store->owner = getpid();
    snprintf(store->path, sizeof(store->path), "%s", path);
    return NVML_SUCCESS;
}

void store_close(struct store *store) {
    if (store->state != NULL)
        munmap(store->state, sizeof(struct state));
    if (store->file >= 0)
        close(store->file);
    store->state = NULL;
    store->file = -1;
}

/* Opens a store whose state may be in use by other threads since before: the same file stays mapped where it was. */
nvmlReturn_t store_attach(struct store *store, const char *path) {
    struct store fresh;
    nvmlReturn_t result = store_open(&fresh, path);
    if (result != NVML_SUCCESS)
        return result;
    pthread_mutex_lock(&threads);
    if (store->state != NULL && store->device == fresh.device && store->inode == fresh.inode) {
        munmap(fresh.state, sizeof(struct state));
        fresh.state = store->state;
    } else if (store->state != NULL) {
        munmap(store->state, sizeof(struct state));
    }
    *store = fresh;
    pthread_mutex_unlock(&threads);
    return NVML_SUCCESS;
}

/* Closes the file and so gives up every lock; the state stays mapped. */
void store_detach(struct store *store) {
    pthread_mutex_lock(&threads);
    if (store->file >= 0)
        close(store->file);
    store->file = -1;
    memset(store->claims, 0, sizeof(store->claims));
    pthread_mutex_unlock(&threads);
}

/* After a fork the open file is shared with the parent, and so would be its locks. */
static bool own_file(struct store *store) {
    int pid = getpid();
    if (store->file < 0)
        return false;
    if (store->owner == pid)
        return true;
    int file = open(store->path, O_RDWR | O_CLOEXEC);
    if (file < 0)
        return false;
    close(store->file);
    store->file = file;
    store->owner = pid;
    memset(store->claims, 0, sizeof(store->claims));
    return true;
}

bool store_lock(struct store *store) {
    pthread_mutex_lock(&threads);
    if (own_file(store) && lock_byte(store->file, F_OFD_SETLKW, F_WRLCK, BYTE_WRITERS) == 0)
        return true;
    pthread_mutex_unlock(&threads);
    return false;
}

void store_unlock(struct store *store) {
    lock_byte(store->file, F_OFD_SETLK, F_UNLCK, BYTE_WRITERS);
    pthread_mutex_unlock(&threads);
}

/* Counts this process as a client of the driver, until it closes the store or ends. */
void store_join(struct store *store) { lock_byte(store->file, F_OFD_SETLK, F_RDLCK, BYTE_CLIENTS); }

/* Whether no other open store is a client. */
bool store_alone(struct store *store) { return lock_byte(store->file, F_OFD_GETLK, F_WRLCK, BYTE_CLIENTS) == 0; }

static off_t engine_byte(unsigned gpu, unsigned slot) { return (off_t)BYTE_ENGINES + gpu * FAKE_ENGINES + slot; }

bool engine_claim(struct store *store, unsigned gpu, unsigned slot) {
    if (lock_byte(store->file, F_OFD_SETLK, F_WRLCK, engine_byte(gpu, slot)) != 0)
        return false;
    store->claims[gpu] |= 1U << slot;
    return true;
}

void engine_release(struct store *store, unsigned gpu, unsigned slot) {
    lock_byte(store->file, F_OFD_SETLK, F_UNLCK, engine_byte(gpu, slot));
    store->claims[gpu] &= ~(1U << slot);
}

static bool engine_dead(struct store *store, unsigned gpu, unsigned slot) {
    if (store->owner != getpid()) /* after a fork, the parent's locks would look like our own */
        return false;
    bool own = (store->claims[gpu] & 1U << slot) != 0;
    return !own && lock_byte(store->file, F_OFD_GETLK, F_WRLCK, engine_byte(gpu, slot)) == 0;
}

/* Forgets engines that have died. What they drew since they last said so is nobody's. */
static bool bury(struct store *store, unsigned index, struct gpu *gpu) {
    bool changed = false;
    for (unsigned slot = 0; slot < FAKE_ENGINES; slot++) {
        if (gpu->engines[slot].pid == 0 || !engine_dead(store, index, slot))
            continue;
        if (!changed)
            gpu_settle(gpu, store_now(store));
        memset(&gpu->engines[slot], 0, sizeof(gpu->engines[slot]));
        changed = true;
    }
    return changed;
}

void gpu_read(struct store *store, unsigned index, struct gpu *copy) {
    struct versions *versions = &store->state->gpus[index];
    uint64_t before, after;
    do {
        before = __atomic_load_n(&versions->sequence, __ATOMIC_ACQUIRE);
        memcpy(copy, &versions->version[before & 1], sizeof(*copy));
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        after = __atomic_load_n(&versions->sequence, __ATOMIC_RELAXED);
    } while (before != after);
}

/* The GPU as it is now, without engines that have died. */
void gpu_observe(struct store *store, unsigned index, struct gpu *copy) {
    gpu_read(store, index, copy);
    if (!gpu_attached(copy) || !bury(store, index, copy))
        return;
    if (!store_lock(store))
        return;
    gpu_read(store, index, copy);
    if (bury(store, index, copy))
        gpu_write(store, index, copy);
    store_unlock(store);
}

/* Only with the store locked. */
void gpu_write(struct store *store, unsigned index, const struct gpu *next) {
    struct versions *versions = &store->state->gpus[index];
    uint64_t sequence = versions->sequence;
    memcpy(&versions->version[(sequence + 1) & 1], next, sizeof(*next));
    __atomic_store_n(&versions->sequence, sequence + 1, __ATOMIC_RELEASE);
}

/* Settings as they are after the driver was loaded. Only with the store locked. */
void store_revert(struct store *store, bool reloaded) {
    uint64_t now = store_now(store);
    for (unsigned index = 0; index < store->state->gpu_count; index++) {
        struct gpu gpu;
        gpu_read(store, index, &gpu);
        bury(store, index, &gpu);
        if (!reloaded && (gpu.persistence != 0 || gpu.process_count > 0 || gpu_attached(&gpu)))
            continue;
        gpu_settle(&gpu, now);
        gpu_defaults(&gpu);
        if (reloaded) {
            gpu.millijoules = gpu.picojoules = 0;
            gpu.power_violation_ns = gpu.thermal_violation_ns = 0;
            gpu.process_count = 0;
            gpu.load_permille = 0;
            gpu.lost = 0;
            gpu.slowed_to_mhz = 0;
            gpu.slowed_reasons = 0;
            gpu.mig_current = gpu.mig_pending;
            memset(gpu.engines, 0, sizeof(gpu.engines));
        }
        gpu_write(store, index, &gpu);
    }
}

/* Only with the store locked. */
void store_log(struct store *store, unsigned gpu, enum function function, uint32_t first, uint32_t second,
               nvmlReturn_t result) {
    struct state *state = store->state;
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    state->writes[state->write_count % FAKE_WRITES] = (struct write){
        .monotonic_ns = monotonic_now(),
        .realtime_ns = (uint64_t)time.tv_sec * 1000000000ULL + (uint64_t)time.tv_nsec,
        .pid = (uint32_t)getpid(),
        .gpu = gpu,
        .function = function,
        .result = result,
        .first = first,
        .second = second,
    };
    __atomic_store_n(&state->write_count, state->write_count + 1, __ATOMIC_RELEASE);
}

/* Takes one from a bounded number of calls; false if none is left. */
static bool take(int32_t *number) {
    int32_t left = __atomic_load_n(number, __ATOMIC_ACQUIRE);
    while (left > 0)
        if (__atomic_compare_exchange_n(number, &left, left - 1, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            return true;
    return false;
}

/* Waits until the rule is removed. Its place may be another rule's by then. */
static void hang(struct rule *rule) {
    uint64_t serial = __atomic_load_n(&rule->serial, __ATOMIC_ACQUIRE);
    __atomic_add_fetch(&rule->waiting, 1, __ATOMIC_ACQ_REL);
    while (__atomic_load_n(&rule->state, __ATOMIC_ACQUIRE) == RULE_ACTIVE &&
           __atomic_load_n(&rule->serial, __ATOMIC_ACQUIRE) == serial)
        nanosleep(&HANG_POLL, NULL);
    if (__atomic_load_n(&rule->serial, __ATOMIC_ACQUIRE) == serial)
        __atomic_sub_fetch(&rule->waiting, 1, __ATOMIC_ACQ_REL);
}

/* Counts a call and applies the rules for it: the error that it shall give, after waiting where it shall hang. */
nvmlReturn_t store_rule(struct store *store, enum function function, int gpu) {
    __atomic_add_fetch(&store->state->calls[function], 1, __ATOMIC_RELAXED);
    for (size_t index = 0; index < FAKE_RULES; index++) {
        struct rule *rule = &store->state->rules[index];
        if (__atomic_load_n(&rule->state, __ATOMIC_ACQUIRE) != RULE_ACTIVE)
            continue;
        if (rule->function >= 0 ? rule->function != (int32_t)function : gpu < 0)
            continue;
        if (rule->gpu >= 0 && rule->gpu != gpu)
            continue;
        if (take(&rule->skip))
            continue;
        if (__atomic_load_n(&rule->remaining, __ATOMIC_ACQUIRE) >= 0 && !take(&rule->remaining))
            continue;
        if (rule->hang == 0)
            return (nvmlReturn_t)rule->code;
        hang(rule);
    }
    return NVML_SUCCESS;
}
