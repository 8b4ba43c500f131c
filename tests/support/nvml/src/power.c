/* NVML: power, its limits, energy, utilization and temperature. */
#include "client.h"

#define FIELD_TOTAL_ENERGY 83U
#define FIELD_POWER_AVERAGE 185U
#define FIELD_POWER_INSTANT 186U
#define FIELD_POWER_MIN_LIMIT 187U
#define FIELD_POWER_MAX_LIMIT 188U
#define FIELD_POWER_DEFAULT_LIMIT 189U
#define FIELD_POWER_CURRENT_LIMIT 190U
#define VALUE_UNSIGNED_INT 1U
#define VALUE_UNSIGNED_LONG_LONG 3U

typedef struct {
    unsigned gpu, memory;
} nvmlUtilization_t;

typedef struct {
    unsigned version, sensor;
    int temperature;
} nvmlTemperature_t;

typedef struct {
    unsigned field, scope;
    long long timestamp, latency_us;
    unsigned type, result;
    unsigned long long value;
} nvmlFieldValue_t;

GETTER_UNLESS(nvmlDeviceGetPowerManagementMode, unsigned, LACKS_POWER_LIMIT, 1)
GETTER_UNLESS(nvmlDeviceGetPowerManagementLimit, unsigned, LACKS_POWER_LIMIT, call.gpu.limit_milliwatts)
GETTER_UNLESS(nvmlDeviceGetPowerManagementDefaultLimit, unsigned, LACKS_POWER_LIMIT,
              call.gpu.product.limit_default_milliwatts)
GETTER(nvmlDeviceGetEnforcedPowerLimit, unsigned, call.gpu.limit_milliwatts)
GETTER(nvmlDeviceGetPowerUsage, unsigned, gpu_running(&call.gpu).milliwatts)
GETTER_UNLESS(nvmlDeviceGetTotalEnergyConsumption, unsigned long long, LACKS_ENERGY,
              (gpu_settle(&call.gpu, store_now(&client)), call.gpu.millijoules))

EXPORT nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device, unsigned *lowest,
                                                                 unsigned *highest) {
    struct call call;
    nvmlReturn_t result = begin(FAKE_nvmlDeviceGetPowerManagementLimitConstraints, device, &call);
    if (result != NVML_SUCCESS)
        return result;
    if (lowest == NULL || highest == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if ((call.gpu.product.lacks & LACKS_POWER_LIMIT) != 0)
        return NVML_ERROR_NOT_SUPPORTED;
    *lowest = call.gpu.product.limit_lowest_milliwatts;
    *highest = call.gpu.product.limit_highest_milliwatts;
    return NVML_SUCCESS;
}

static nvmlReturn_t change_power_limit(struct gpu *gpu, uint32_t milliwatts, uint32_t unused) {
    (void)unused;
    if ((gpu->product.lacks & LACKS_POWER_LIMIT) != 0)
        return NVML_ERROR_NOT_SUPPORTED;
    if (milliwatts < gpu->product.limit_lowest_milliwatts || milliwatts > gpu->product.limit_highest_milliwatts)
        return NVML_ERROR_INVALID_ARGUMENT;
    gpu->limit_milliwatts = milliwatts;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceSetPowerManagementLimit(nvmlDevice_t device, unsigned milliwatts) {
    return set(FAKE_nvmlDeviceSetPowerManagementLimit, device, milliwatts, 0, change_power_limit);
}

EXPORT nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values) {
    struct call call;
    nvmlReturn_t result = begin(FAKE_nvmlDeviceGetFieldValues, device, &call);
    if (result != NVML_SUCCESS)
        return result;
    if (count < 1 || values == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    uint64_t now = store_now(&client);
    gpu_settle(&call.gpu, now);
    for (int place = 0; place < count; place++) {
        nvmlFieldValue_t *value = &values[place];
        const struct product *product = &call.gpu.product;
        uint32_t lack = LACKS_POWER_LIMIT;
        value->timestamp = (long long)(now / 1000);
        value->latency_us = 0;
        value->type = VALUE_UNSIGNED_INT;
        value->value = 0;
        value->result = NVML_SUCCESS;
        switch (value->field) {
        case FIELD_TOTAL_ENERGY:
            value->type = VALUE_UNSIGNED_LONG_LONG;
            value->value = call.gpu.millijoules;
            lack = LACKS_ENERGY;
            break;
        case FIELD_POWER_AVERAGE:
        case FIELD_POWER_INSTANT:
            value->value = gpu_running(&call.gpu).milliwatts;
            lack = 0;
            break;
        case FIELD_POWER_MIN_LIMIT:
            value->value = product->limit_lowest_milliwatts;
            break;
        case FIELD_POWER_MAX_LIMIT:
            value->value = product->limit_highest_milliwatts;
            break;
        case FIELD_POWER_DEFAULT_LIMIT:
            value->value = product->limit_default_milliwatts;
            break;
        case FIELD_POWER_CURRENT_LIMIT:
            value->value = call.gpu.limit_milliwatts;
            break;
        default:
            lack = product->lacks;
            value->result = NVML_ERROR_NOT_SUPPORTED;
        }
        if ((product->lacks & lack) != 0) {
            value->result = NVML_ERROR_NOT_SUPPORTED;
            value->value = 0;
        }
    }
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization) {
    struct call call;
    nvmlReturn_t result = begin(FAKE_nvmlDeviceGetUtilizationRates, device, &call);
    if (result != NVML_SUCCESS)
        return result;
    if (utilization == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (call.gpu.mig_current != 0)
        return NVML_ERROR_NOT_SUPPORTED;
    utilization->gpu = gpu_running(&call.gpu).utilization_percent;
    utilization->memory = utilization->gpu; /* not modelled apart */
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned sensor, unsigned *celsius) {
    struct call call;
    nvmlReturn_t result = begin(FAKE_nvmlDeviceGetTemperature, device, &call);
    if (result != NVML_SUCCESS)
        return result;
    if (celsius == NULL || sensor != 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    *celsius = gpu_running(&call.gpu).temperature;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *temperature) {
    unsigned celsius = 0;
    if (temperature == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (temperature->version != (sizeof(*temperature) | 1U << 24))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    nvmlReturn_t result = nvmlDeviceGetTemperature(device, temperature->sensor, &celsius);
    temperature->temperature = (int)celsius;
    return result;
}
