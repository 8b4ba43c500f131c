/* What a GPU does in a given state: clocks, power, the energy counter. Pure functions of the state. */
#include "state.h"

#include <stddef.h>

/* Dynamic power goes with V²f. The voltage is flat at low clocks and rises linearly from a knee to the highest. */
static const double FLAT_VOLTAGE = 0.7;  /* of the voltage at the highest clock */
static const double KNEE = 0.6;          /* of the highest clock */
static const double MEMORY_SHARE = 0.2;  /* of dynamic power that goes with the memory clock */
static const double COLD_CELSIUS = 30.0; /* idle */
static const double HOT_CELSIUS = 75.0;  /* at full power */

static const uint64_t PICOJOULES_PER_MILLIJOULE = 1000000000ULL;

static double dynamic_share(const struct product *product, double mhz) {
    double share = mhz / product->highest_mhz;
    double voltage = share <= KNEE ? FLAT_VOLTAGE : FLAT_VOLTAGE + (1.0 - FLAT_VOLTAGE) * (share - KNEE) / (1.0 - KNEE);
    return share * voltage * voltage;
}

static double standing_milliwatts(const struct product *product, double mhz) {
    double range = (double)product->highest_mhz - product->lowest_mhz;
    double share = range > 0.0 ? (mhz - product->lowest_mhz) / range : 1.0;
    share = share < 0.0 ? 0.0 : share;
    return product->unloaded_milliwatts + ((double)product->idle_milliwatts - product->unloaded_milliwatts) * share;
}

bool gpu_attached(const struct gpu *gpu) {
    for (size_t slot = 0; slot < FAKE_ENGINES; slot++)
        if (gpu->engines[slot].pid != 0)
            return true;
    return false;
}

/* Power while work runs at this clock: what engines say that theirs draws, carried over to this clock, or the load. */
static double busy_milliwatts(const struct gpu *gpu, uint32_t mhz, uint32_t memory_mhz, bool attached) {
    const struct product *product = &gpu->product;
    double standing = standing_milliwatts(product, mhz);
    if (attached) {
        double dynamic = 0.0;
        for (size_t slot = 0; slot < FAKE_ENGINES; slot++) {
            const struct engine *engine = &gpu->engines[slot];
            if (engine->pid == 0 || engine->busy_milliwatts == 0 || engine->busy_mhz == 0)
                continue;
            double above = engine->busy_milliwatts - standing_milliwatts(product, engine->busy_mhz);
            if (above > 0.0)
                dynamic += above * dynamic_share(product, mhz) / dynamic_share(product, engine->busy_mhz);
        }
        return standing + dynamic;
    }
    double memory = product->memory_clock_count > 0 ? (double)memory_mhz / product->memory_mhz[0] : 1.0;
    double dynamic = (double)product->full_milliwatts - product->idle_milliwatts;
    return standing + dynamic * gpu->load_permille / 1000.0 * dynamic_share(product, mhz) *
                          (1.0 - MEMORY_SHARE + MEMORY_SHARE * memory);
}

/* The highest supported clock that is not above this one; the lowest if there is none. */
static uint32_t clock_at_most(const struct product *product, uint32_t mhz) {
    if (mhz >= product->highest_mhz)
        return product->highest_mhz;
    if (mhz <= product->lowest_mhz)
        return product->lowest_mhz;
    return product->lowest_mhz + (mhz - product->lowest_mhz) / product->step_mhz * product->step_mhz;
}

static uint32_t memory_clock_at_most(const struct product *product, uint32_t mhz) {
    for (size_t index = 0; index < product->memory_clock_count; index++)
        if (product->memory_mhz[index] <= mhz)
            return product->memory_mhz[index];
    return product->memory_clock_count > 0 ? product->memory_mhz[product->memory_clock_count - 1] : 0;
}

uint32_t clock_count(const struct product *product) {
    return (product->highest_mhz - product->lowest_mhz) / product->step_mhz + 1;
}

struct running gpu_running(const struct gpu *gpu) {
    const struct product *product = &gpu->product;
    struct running running = {0};
    bool attached = gpu_attached(gpu);
    bool context = attached || gpu->process_count > 0 || gpu->load_permille > 0;

    running.memory_mhz = product->memory_clock_count > 0 ? product->memory_mhz[0] : 0;
    if (gpu->memory_highest_mhz != 0)
        running.memory_mhz = gpu->memory_highest_mhz;

    uint32_t lowest = gpu->sm_highest_mhz != 0 ? gpu->sm_lowest_mhz : product->lowest_mhz;
    uint32_t highest = gpu->sm_highest_mhz != 0 ? gpu->sm_highest_mhz : product->highest_mhz;
    running.sm_mhz = context ? highest : lowest; /* a CUDA context keeps the clocks up */
    if (!context)
        running.reasons |= REASON_GPU_IDLE;

    if (gpu->slowed_to_mhz != 0) {
        running.reasons |= gpu->slowed_reasons;
        if (running.sm_mhz > gpu->slowed_to_mhz)
            running.sm_mhz = clock_at_most(product, gpu->slowed_to_mhz);
    }
    /* A power limit wins over a lock. */
    while (running.sm_mhz > product->lowest_mhz &&
           busy_milliwatts(gpu, running.sm_mhz, running.memory_mhz, attached) > gpu->limit_milliwatts) {
        running.sm_mhz -= product->step_mhz;
        running.reasons |= REASON_SW_POWER_CAP;
    }

    if (attached) {
        for (size_t slot = 0; slot < FAKE_ENGINES; slot++) {
            const struct engine *engine = &gpu->engines[slot];
            if (engine->pid == 0)
                continue;
            running.milliwatts += engine->milliwatts;
            if (engine->utilization_percent > running.utilization_percent)
                running.utilization_percent = engine->utilization_percent;
        }
    } else {
        running.milliwatts = (uint32_t)(busy_milliwatts(gpu, running.sm_mhz, running.memory_mhz, false) + 0.5);
        running.utilization_percent = (gpu->load_permille + 5) / 10;
    }
    running.temperature = gpu->temperature;
    if (running.temperature == 0) {
        double share = (double)running.milliwatts / product->full_milliwatts;
        share = share > 1.0 ? 1.0 : share;
        running.temperature = (uint32_t)(COLD_CELSIUS + (HOT_CELSIUS - COLD_CELSIUS) * share + 0.5);
    }
    return running;
}

/* Brings the counters up to now. With an engine attached, only the engine says what is drawn. */
void gpu_settle(struct gpu *gpu, uint64_t now_ns) {
    if (now_ns <= gpu->since_ns)
        return;
    uint64_t elapsed_ns = now_ns - gpu->since_ns;
    struct running running = gpu_running(gpu);
    if (!gpu_attached(gpu)) {
        unsigned __int128 drawn = (unsigned __int128)running.milliwatts * elapsed_ns + gpu->picojoules;
        gpu->millijoules += (uint64_t)(drawn / PICOJOULES_PER_MILLIJOULE);
        gpu->picojoules = (uint64_t)(drawn % PICOJOULES_PER_MILLIJOULE);
    }
    if ((running.reasons & REASON_SW_POWER_CAP) != 0)
        gpu->power_violation_ns += elapsed_ns;
    if ((running.reasons & (REASON_SW_THERMAL_SLOWDOWN | REASON_HW_THERMAL_SLOWDOWN)) != 0)
        gpu->thermal_violation_ns += elapsed_ns;
    gpu->since_ns = now_ns;
}

/* NVIDIA documents no rounding: bounds between two supported clocks are taken down, bounds outside to the nearest. */
void gpu_lock_sm(struct gpu *gpu, uint32_t lowest_mhz, uint32_t highest_mhz) {
    gpu->sm_highest_mhz = clock_at_most(&gpu->product, highest_mhz);
    gpu->sm_lowest_mhz = clock_at_most(&gpu->product, lowest_mhz);
}

void gpu_lock_memory(struct gpu *gpu, uint32_t lowest_mhz, uint32_t highest_mhz) {
    gpu->memory_highest_mhz = memory_clock_at_most(&gpu->product, highest_mhz);
    gpu->memory_lowest_mhz = memory_clock_at_most(&gpu->product, lowest_mhz);
}

void gpu_defaults(struct gpu *gpu) {
    gpu->sm_lowest_mhz = gpu->sm_highest_mhz = 0;
    gpu->memory_lowest_mhz = gpu->memory_highest_mhz = 0;
    gpu->limit_milliwatts = gpu->product.limit_default_milliwatts;
}
