/* What the files of NVML's interface share: this process's connection to the driver, and how a call begins and ends. */
#ifndef HELIOTROPE_FAKE_NVML_CLIENT_H
#define HELIOTROPE_FAKE_NVML_CLIENT_H

#include "state.h"

#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))

struct nvmlDevice_st {
    char unused;
};
typedef struct nvmlDevice_st *nvmlDevice_t;

/* Handles are addresses in here: one per GPU, and one per partition of it. */
extern struct nvmlDevice_st handles[FAKE_GPUS][1 + FAKE_PARTITIONS];

extern struct store client;

/* A call on a device: which, and its state when the call began. */
struct call {
    unsigned index; /* FAKE_GPUS: of no GPU that there is */
    int partition;  /* -1: the GPU itself */
    struct gpu gpu;
};

/* A change of settings: makes the new state of the present one, or says why not. */
typedef nvmlReturn_t change_function(struct gpu *gpu, uint32_t first, uint32_t second);

nvmlReturn_t connected(void);
nvmlReturn_t begin_system(enum function function);
nvmlReturn_t begin_any(enum function function, nvmlDevice_t device, struct call *call);
nvmlReturn_t begin(enum function function, nvmlDevice_t device, struct call *call);
nvmlReturn_t set(enum function function, nvmlDevice_t device, uint32_t first, uint32_t second,
                 change_function *change);
nvmlReturn_t hand_out(unsigned needed, unsigned *count);
nvmlReturn_t copy_text(char *buffer, unsigned length, const char *text);

/* The getters of one number; `value` is what the call is about. */
#define GETTER(name, type, value)                                                                                      \
    EXPORT nvmlReturn_t name(nvmlDevice_t device, type *answer) {                                                      \
        struct call call;                                                                                              \
        nvmlReturn_t result = begin(FAKE_##name, device, &call);                                                       \
        if (result != NVML_SUCCESS)                                                                                    \
            return result;                                                                                             \
        if (answer == NULL)                                                                                            \
            return NVML_ERROR_INVALID_ARGUMENT;                                                                        \
        *answer = (value);                                                                                             \
        return NVML_SUCCESS;                                                                                           \
    }

/* As GETTER, of a GPU that may lack it. */
#define GETTER_UNLESS(name, type, lack, value)                                                                         \
    EXPORT nvmlReturn_t name(nvmlDevice_t device, type *answer) {                                                      \
        struct call call;                                                                                              \
        nvmlReturn_t result = begin(FAKE_##name, device, &call);                                                       \
        if (result != NVML_SUCCESS)                                                                                    \
            return result;                                                                                             \
        if (answer == NULL)                                                                                            \
            return NVML_ERROR_INVALID_ARGUMENT;                                                                        \
        if ((call.gpu.product.lacks & (lack)) != 0)                                                                    \
            return NVML_ERROR_NOT_SUPPORTED;                                                                           \
        *answer = (value);                                                                                             \
        return NVML_SUCCESS;                                                                                           \
    }

#endif
