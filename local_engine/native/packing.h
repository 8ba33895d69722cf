// Rounds a float32 matrix to bytes in blocks, in the format of tiles.h.
#pragma once
#include <cstring>

#include "tiles.h"

namespace {

// One panel: up to 16 outputs of k inputs each. With fewer outputs, `to` keeps its zeros. Scales are rounded to float16
// before values are divided by them.
void round_panel(const float* from, long k, long outputs, uint8_t* to) {
    for (const float* end = from + k; from < end; from += kBlock, to += kByteBlock) {
        float peaks[kLanes] = {}, divisors[kLanes];
        for (long i = 0; i < outputs; ++i)
            peaks[i] = largest(max(magnitude(load(from + i * k)), magnitude(load(from + i * k + kLanes))));
        uint8_t halves[2 * kLanes];
        store_half(halves, load(peaks) / every(127.0f));
        std::memcpy(to, halves, 2 * outputs);
        const Floats scales = load_half(halves);
        store_half(halves, scales * every(-128.0f));
        std::memcpy(to + 2 * kLanes, halves, 2 * outputs);
        store(divisors, max(scales, every(0x1p-24f)));
        for (long i = 0; i < outputs; ++i) {
            int8_t values[kBlock];
            for (long half = 0; half < kBlock; half += kLanes) {
                const Floats x = load(from + i * k + half) / every(divisors[i]);
                narrow(values + half, to_ints(every(0.0f) - max(every(0.0f) - max(x, every(-127.0f)), every(-127.0f))));
            }
            for (long step = 0; step < kGroups; ++step) {
                uint32_t four;
                std::memcpy(&four, values + 4 * step, 4);
                four ^= 0x80808080u;  // adds 128, giving unsigned values
                std::memcpy(to + kHeader + (step * kLanes + i) * 4, &four, 4);
            }
        }
    }
}

}  // namespace
