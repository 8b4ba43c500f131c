/*
 * A stand-in for the NVIDIA driver and its library libnvidia-ml.so.1, for machines without a GPU.
 *
 * The real driver's state lives in the kernel: it outlives every process that talks to it. Here it lives in a file that
 * all processes map; the environment variable HELIOTROPE_FAKE_NVML names it. `store.c` keeps the file, `model.c` says
 * what a GPU does in a given state. The library's own interface is in `client.c`, `system.c`, `devices.c`, `clocks.c`,
 * `power.c` and `processes.c`; `control.c` is what tests use beside it and `engines.c` what emulated engines do
 * (`heliotropeFake…`).
 *
 * Modelled: several GPUs with their products' clocks and power limits; locks of SM and memory clocks, power limits,
 * what they do to the clock that a GPU runs at and to its power; an energy counter that is the exact integral of that
 * power; MIG mode and partitions; compute processes; who may change settings; driver reloads, and settings that revert
 * with the last client where persistence mode is off; errors and hangs on demand.
 *
 * Not modelled: clocks that take time to change, boost that depends on temperature, application clocks, accounting,
 * NVLink, ECC, vGPU, fans. A process that hangs in the real driver cannot be killed, here it can. The TDP clock is not
 * told apart from the highest one. Where NVIDIA documents nothing, the choice made here is said beside it.
 */
#ifndef HELIOTROPE_FAKE_NVML_STATE_H
#define HELIOTROPE_FAKE_NVML_STATE_H

#include <stdbool.h>
#include <stdint.h>

#define FAKE_MAGIC 0x4c4d56454b414648ULL
#define FAKE_LAYOUT 4U

#define FAKE_GPUS 16U
#define FAKE_PROCESSES 32U
#define FAKE_PARTITIONS 7U
#define FAKE_ENGINES 8U
#define FAKE_MEMORY_CLOCKS 8U
#define FAKE_RULES 64U
#define FAKE_WRITES 16384U

/* NVML's return codes, as far as this library gives them of its own accord; a rule may give any other. */
typedef enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NO_PERMISSION = 4,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_GPU_IS_LOST = 15,
    NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
    NVML_ERROR_UNKNOWN = 999
} nvmlReturn_t;

/* Every function that a rule can name and whose calls are counted. */
#define FAKE_FUNCTIONS(X)                                                                                              \
    X(nvmlInitWithFlags)                                                                                               \
    X(nvmlShutdown)                                                                                                    \
    X(nvmlSystemGetDriverVersion)                                                                                      \
    X(nvmlSystemGetNVMLVersion)                                                                                        \
    X(nvmlSystemGetCudaDriverVersion)                                                                                  \
    X(nvmlDeviceGetCount)                                                                                              \
    X(nvmlDeviceGetHandleByIndex)                                                                                      \
    X(nvmlDeviceGetHandleByUUID)                                                                                       \
    X(nvmlDeviceGetHandleByPciBusId)                                                                                   \
    X(nvmlDeviceGetName)                                                                                               \
    X(nvmlDeviceGetUUID)                                                                                               \
    X(nvmlDeviceGetIndex)                                                                                              \
    X(nvmlDeviceGetMinorNumber)                                                                                        \
    X(nvmlDeviceGetPciInfo)                                                                                            \
    X(nvmlDeviceGetMemoryInfo)                                                                                         \
    X(nvmlDeviceGetPersistenceMode)                                                                                    \
    X(nvmlDeviceSetPersistenceMode)                                                                                    \
    X(nvmlDeviceGetPerformanceState)                                                                                   \
    X(nvmlDeviceGetSupportedMemoryClocks)                                                                              \
    X(nvmlDeviceGetSupportedGraphicsClocks)                                                                            \
    X(nvmlDeviceGetClockInfo)                                                                                          \
    X(nvmlDeviceGetMaxClockInfo)                                                                                       \
    X(nvmlDeviceSetGpuLockedClocks)                                                                                    \
    X(nvmlDeviceResetGpuLockedClocks)                                                                                  \
    X(nvmlDeviceSetMemoryLockedClocks)                                                                                 \
    X(nvmlDeviceResetMemoryLockedClocks)                                                                               \
    X(nvmlDeviceGetPowerManagementMode)                                                                                \
    X(nvmlDeviceGetPowerManagementLimit)                                                                               \
    X(nvmlDeviceGetPowerManagementLimitConstraints)                                                                    \
    X(nvmlDeviceGetPowerManagementDefaultLimit)                                                                        \
    X(nvmlDeviceGetEnforcedPowerLimit)                                                                                 \
    X(nvmlDeviceSetPowerManagementLimit)                                                                               \
    X(nvmlDeviceGetPowerUsage)                                                                                         \
    X(nvmlDeviceGetTotalEnergyConsumption)                                                                             \
    X(nvmlDeviceGetFieldValues)                                                                                        \
    X(nvmlDeviceGetUtilizationRates)                                                                                   \
    X(nvmlDeviceGetTemperature)                                                                                        \
    X(nvmlDeviceGetCurrentClocksEventReasons)                                                                          \
    X(nvmlDeviceGetCurrentClocksThrottleReasons)                                                                       \
    X(nvmlDeviceGetSupportedClocksEventReasons)                                                                        \
    X(nvmlDeviceGetSupportedClocksThrottleReasons)                                                                     \
    X(nvmlDeviceGetViolationStatus)                                                                                    \
    X(nvmlDeviceGetComputeRunningProcesses)                                                                            \
    X(nvmlDeviceGetGraphicsRunningProcesses)                                                                           \
    X(nvmlDeviceGetMPSComputeRunningProcesses)                                                                         \
    X(nvmlDeviceGetMigMode)                                                                                            \
    X(nvmlDeviceGetMaxMigDeviceCount)                                                                                  \
    X(nvmlDeviceGetMigDeviceHandleByIndex)                                                                             \
    X(nvmlDeviceGetDeviceHandleFromMigDeviceHandle)                                                                    \
    X(nvmlDeviceIsMigDeviceHandle)                                                                                     \
    X(nvmlDeviceGetGpuInstanceId)                                                                                      \
    X(nvmlDeviceGetComputeInstanceId)

#define FAKE_ENUMERATOR(name) FAKE_##name,
enum function { FAKE_FUNCTIONS(FAKE_ENUMERATOR) FAKE_FUNCTION_COUNT };
#undef FAKE_ENUMERATOR

/* What a GPU cannot do: it answers NOT_SUPPORTED. */
enum lack { LACKS_SM_LOCK = 1, LACKS_MEMORY_LOCK = 2, LACKS_POWER_LIMIT = 4, LACKS_ENERGY = 8, LACKS_PROCESSES = 16 };

/* Bits of nvmlDeviceGetCurrentClocksEventReasons that the model sets itself. */
#define REASON_GPU_IDLE 0x1ULL
#define REASON_SW_POWER_CAP 0x4ULL
#define REASON_SW_THERMAL_SLOWDOWN 0x20ULL
#define REASON_HW_THERMAL_SLOWDOWN 0x40ULL

struct product {
    char name[64];
    uint64_t memory_bytes;
    uint32_t lowest_mhz;
    uint32_t highest_mhz;
    uint32_t step_mhz;
    uint32_t memory_clock_count;
    uint32_t memory_mhz[FAKE_MEMORY_CLOCKS]; /* descending */
    uint32_t unloaded_milliwatts;            /* nothing on it, at the lowest clock */
    uint32_t idle_milliwatts;                /* no work, at the highest clock */
    uint32_t full_milliwatts;                /* full load at the highest clock */
    uint32_t limit_lowest_milliwatts;
    uint32_t limit_highest_milliwatts;
    uint32_t limit_default_milliwatts;
    uint32_t lacks; /* enum lack */
};

struct process {
    uint32_t pid;
    uint32_t gpu_instance; /* UINT32_MAX: none */
    uint32_t compute_instance;
    uint32_t mps; /* 1: a client of the Multi-Process Service, which is listed apart */
    uint64_t used_bytes;
};

/* A process that says itself what its work draws; see heliotropeFakeAttach. */
struct engine {
    uint32_t pid; /* 0: the slot is free */
    uint32_t milliwatts;
    uint32_t busy_milliwatts; /* 0: not said */
    uint32_t busy_mhz;
    uint32_t utilization_percent;
    uint32_t unused;
};

struct partition {
    char uuid[48];
    uint32_t gpu_instance;
    uint32_t compute_instance;
};

struct gpu {
    struct product product;
    char uuid[48];
    char bus_id[32];

    /* Settings; 0 in a clock's bounds: not locked. */
    uint32_t sm_lowest_mhz;
    uint32_t sm_highest_mhz;
    uint32_t memory_lowest_mhz;
    uint32_t memory_highest_mhz;
    uint32_t limit_milliwatts;
    uint32_t persistence;

    /* Circumstances. */
    uint32_t lost;
    uint32_t load_permille;
    uint32_t slowed_to_mhz; /* 0: not */
    uint32_t temperature;   /* 0: as the power is */
    uint64_t slowed_reasons;
    uint32_t mig_current;
    uint32_t mig_pending;
    uint32_t partition_count;
    uint32_t process_count;
    struct partition partitions[FAKE_PARTITIONS];
    struct process processes[FAKE_PROCESSES];
    struct engine engines[FAKE_ENGINES];

    /* Counters up to `since_ns`: millijoules, and picojoules (mW·ns) that do not make one yet; time slowed down. */
    uint64_t millijoules;
    uint64_t picojoules;
    uint64_t power_violation_ns;
    uint64_t thermal_violation_ns;
    uint64_t since_ns;
};

/* A GPU is never changed in place: the next version is written beside the present one and `sequence` moves on. So a
 * process that is killed in the middle changes nothing, and readers need no lock. */
struct versions {
    uint64_t sequence;
    struct gpu version[2];
};

enum rule_state { RULE_FREE = 0, RULE_ACTIVE = 1 };

struct rule {
    uint32_t state;    /* enum rule_state */
    int32_t function;  /* enum function; -1: any of a GPU */
    int32_t gpu;       /* -1: any */
    uint32_t hang;     /* 1: wait until the rule is removed, then go on */
    uint32_t code;     /* nvmlReturn_t */
    int32_t skip;      /* so many calls pass first */
    int32_t remaining; /* calls that it still holds for; -1: all */
    uint32_t waiting;  /* calls that hang, or hung when their process was killed */
    uint64_t serial;   /* tells it from earlier rules in its place */
};

struct write {
    uint64_t monotonic_ns;
    uint64_t realtime_ns;
    uint32_t pid;
    uint32_t gpu;
    uint32_t function;
    uint32_t result;
    uint32_t first; /* arguments as they were given */
    uint32_t second;
};

struct state {
    uint64_t magic;
    uint32_t layout;
    uint32_t size;
    char driver_version[80];
    uint64_t generation;    /* of the loaded driver; 0: not loaded */
    uint64_t loads;         /* so far */
    uint64_t manual;        /* 1: time stands still but for heliotropeFakeAdvance */
    uint64_t manual_ns;
    uint32_t privileged;    /* 1: settings need CAP_SYS_ADMIN; 2: nobody may change them */
    uint32_t gpu_count;
    uint64_t calls[FAKE_FUNCTION_COUNT];
    uint64_t rule_count; /* so far */
    struct rule rules[FAKE_RULES];
    struct versions gpus[FAKE_GPUS];
    uint64_t write_count;
    struct write writes[FAKE_WRITES]; /* a ring */
};

/* One opened state file. Not shared between processes: after a fork the child opens it anew. */
struct store {
    struct state *state;
    int file; /* -1: none */
    uint64_t device;
    uint64_t inode;
    int owner;                  /* pid that opened it */
    uint32_t claims[FAKE_GPUS]; /* slots of engines that this store holds, as bits */
    char path[4096];
};

/* store.c */
nvmlReturn_t store_open(struct store *store, const char *path);
nvmlReturn_t store_create(const char *path, const char *driver_version);
void store_close(struct store *store);
nvmlReturn_t store_attach(struct store *store, const char *path);
void store_detach(struct store *store);
bool store_lock(struct store *store);
void store_unlock(struct store *store);
void store_join(struct store *store);
bool store_alone(struct store *store);
bool engine_claim(struct store *store, unsigned gpu, unsigned slot);
void engine_release(struct store *store, unsigned gpu, unsigned slot);
void gpu_observe(struct store *store, unsigned index, struct gpu *copy);
void gpu_read(struct store *store, unsigned index, struct gpu *copy);
void gpu_write(struct store *store, unsigned index, const struct gpu *next);
uint64_t store_now(const struct store *store);
uint64_t monotonic_now(void);
void store_revert(struct store *store, bool reloaded);
void store_log(struct store *store, unsigned gpu, enum function function, uint32_t first, uint32_t second,
               nvmlReturn_t result);
nvmlReturn_t store_rule(struct store *store, enum function function, int gpu);

/* model.c */
struct running {
    uint32_t sm_mhz;
    uint32_t memory_mhz;
    uint32_t milliwatts;
    uint32_t utilization_percent;
    uint32_t temperature;
    uint64_t reasons;
};

struct running gpu_running(const struct gpu *gpu);
bool gpu_attached(const struct gpu *gpu);
void gpu_settle(struct gpu *gpu, uint64_t now_ns);
uint32_t clock_count(const struct product *product);
void gpu_lock_sm(struct gpu *gpu, uint32_t lowest_mhz, uint32_t highest_mhz);
void gpu_lock_memory(struct gpu *gpu, uint32_t lowest_mhz, uint32_t highest_mhz);
void gpu_defaults(struct gpu *gpu);

#endif
