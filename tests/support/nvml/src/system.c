/* NVML about itself and the driver as a whole. */
#include "client.h"

#include <stdio.h>

#define CUDA_DRIVER_VERSION 13000

EXPORT const char *nvmlErrorString(nvmlReturn_t result) {
    static const char *const texts[] = {
        "Success",
        "Uninitialized",
        "Invalid Argument",
        "Not Supported",
        "Insufficient Permissions",
        "Already Initialized",
        "Not Found",
        "Insufficient Size",
        "Insufficient External Power",
        "Driver Not Loaded",
        "Timeout",
        "Interrupt Request Issue",
        "NVML Shared Library Not Found",
        "Function Not Found",
        "Corrupted infoROM",
        "GPU is lost",
        "GPU requires reset",
        "The operating system has blocked the request",
        "Driver/library version mismatch",
        "In use by another client",
        "Insufficient Memory",
        "No data",
        "ECC is not supported with vGPU",
        "Insufficient resources",
        "Frequency not supported",
        "Argument version mismatch",
        "Deprecated",
        "Not ready",
        "GPU not found",
        "Invalid state",
        "Reset type not supported",
    };
    size_t code = (size_t)result;
    return code < sizeof(texts) / sizeof(texts[0]) ? texts[code] : "Unknown Error";
}

EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned length) {
    nvmlReturn_t result = begin_system(FAKE_nvmlSystemGetDriverVersion);
    return result != NVML_SUCCESS ? result : copy_text(version, length, client.state->driver_version);
}

EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned length) {
    char text[96];
    nvmlReturn_t result = begin_system(FAKE_nvmlSystemGetNVMLVersion);
    if (result != NVML_SUCCESS)
        return result;
    snprintf(text, sizeof(text), "13.%s", client.state->driver_version);
    return copy_text(version, length, text);
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) {
    nvmlReturn_t result = begin_system(FAKE_nvmlSystemGetCudaDriverVersion);
    if (result == NVML_SUCCESS && version == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS)
        *version = CUDA_DRIVER_VERSION;
    return result;
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) { return nvmlSystemGetCudaDriverVersion(version); }
