// y = x . w for any number of rows, divided into tiles and among threads.
#pragma once
#include <algorithm>

#include "threads.h"
#include "tiles.h"

namespace {

template <class Kind, int panels, int rows>
inline void last_rows(const Activations& x, long left, const Matrix& w, const Place& at) {
    if (left == rows) Kind::template tile<rows, panels>(x, w, at);
    else if constexpr (rows > 1) last_rows<Kind, panels, rows - 1>(x, left, w, at);
}

template <class Kind, int panels>
inline void all_rows(const Activations& x, long rows, const Matrix& w, Place at) {
    for (; at.row + Kind::kMaxRows <= rows; at.row += Kind::kMaxRows)
        Kind::template tile<Kind::kMaxRows, panels>(x, w, at);
    if constexpr (Kind::kMaxRows > 1) last_rows<Kind, panels, Kind::kMaxRows - 1>(x, rows - at.row, w, at);
}

// Weights read as stored.
template <class Kind>
struct AsTheyAre : Kind {
    static constexpr bool kUnpacks = false;
};

// Weights first unpacked into memory that many rows then read; `Packed` is their stored form.
template <class Packed, class Kind>
struct Unpacked : Kind {
    static constexpr bool kUnpacks = true;
    static long panel_bytes(const Matrix& w) { return Packed::panel_bytes(w); }
    static void unpack(const uint8_t* from, long inputs, uint8_t* to) { Packed::unpack(from, inputs, to); }
};

template <class Kind, int panels>
inline void some_panels(const Activations& x, long rows, const Matrix& w, long panel, float* y, bool adds,
                        uint8_t* scratch) {
    Place at{0, panel * kLanes, w.packed + panel * Kind::panel_bytes(w), y, adds};
    if constexpr (Kind::kUnpacks) {
        Kind::unpack(at.weights, panels * w.k, scratch);
        at.weights = scratch;
    }
    all_rows<Kind, panels>(x, rows, w, at);
}

template <class Kind, int panels>
inline void last_panels(const Activations& x, long rows, const Matrix& w, Range left, float* y, bool adds,
                        uint8_t* scratch) {
    if (left.end - left.begin == panels) some_panels<Kind, panels>(x, rows, w, left.begin, y, adds, scratch);
    else if constexpr (panels > 1) last_panels<Kind, panels - 1>(x, rows, w, left, y, adds, scratch);
}

// This thread's outputs of all rows.
template <class Kind>
void all_panels(const Activations& x, long rows, const Matrix& w, Range left, float* y, bool adds, uint8_t* scratch) {
    constexpr int most = Kind::kMaxPanels;
    for (; left.begin + most <= left.end; left.begin += most)
        some_panels<Kind, most>(x, rows, w, left.begin, y, adds, scratch);
    if constexpr (most > 1) last_panels<Kind, most - 1>(x, rows, w, left, y, adds, scratch);
}

// Bytes of scratch per thread for matrices of up to k inputs.
long scratch_bytes(long k) { return std::max(kBytePanels * k / kBlock * kByteBlock, kFloatPanels * k * kLanes * 4); }

// y [rows, n] = or += x . w; each thread computes its share of the outputs.
void product(const Activations& x, long rows, const Matrix& w, float* y, bool adds, uint8_t* scratch, long thread,
             long threads) {
    const Range mine = share((w.n + kLanes - 1) / kLanes, thread, threads);
    const auto run = [&](auto kind) { all_panels<decltype(kind)>(x, rows, w, mine, y, adds, scratch); };
    // What nibbles are unpacked to for many rows. Where small bytes have no advantage they are treated as any others.
    using Few = Quantised<Layout::kNibbles>;
    using Many = Quantised<Dots::kTakesNibbles ? Layout::kSmallBytes : Layout::kBytes>;
    using ManyFloats = Float<kFloatRows, kFloatPanels>;
    switch (w.format) {
        case kBytes: return run(AsTheyAre<Quantised<Layout::kBytes>>());
        case kNibbles: return rows <= kRowsReadPacked ? run(AsTheyAre<Few>()) : run(Unpacked<Few, Many>());
        case kFloats:
            return rows <= kFewRows ? run(AsTheyAre<Float<kFewRows, kFewRowsPanels>>()) : run(AsTheyAre<ManyFloats>());
        default: with_held(w, [&](auto held) {
            using FewFloats = FloatOf<decltype(held), kFloatRows, kHeldPanels>;
            rows <= held.kRowsReadPacked ? run(AsTheyAre<FewFloats>()) : run(Unpacked<FewFloats, ManyFloats>());
        });
    }
}

}  // namespace
