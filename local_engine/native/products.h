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

// How a matrix is stored: a panel's bytes and, where many rows repay it, how to unpack panels into memory first.
struct Stored {
    long panel_bytes;
    void (*unpack)(const uint8_t* from, long inputs, uint8_t* to);  // null for weights read as stored
};

// A product's operands, result and scratch, for one thread.
struct Task {
    const Activations& x;
    long rows;
    const Matrix& w;
    Stored stored;
    float* y;
    bool adds;
    uint8_t* scratch;
};

template <class Kind, int panels>
inline void some_panels(const Task& task, long panel) {
    Place at{0, panel * kLanes, task.w.packed + panel * task.stored.panel_bytes, task.y, task.adds};
    if (task.stored.unpack) {
        task.stored.unpack(at.weights, panels * task.w.k, task.scratch);
        at.weights = task.scratch;
    }
    all_rows<Kind, panels>(task.x, task.rows, task.w, at);
}

template <class Kind, int panels>
inline void last_panels(const Task& task, Range left) {
    if (left.end - left.begin == panels) some_panels<Kind, panels>(task, left.begin);
    else if constexpr (panels > 1) last_panels<Kind, panels - 1>(task, left);
}

// This thread's outputs of all rows.
template <class Kind>
void all_panels(const Task& task, Range left) {
    constexpr int most = Kind::kMaxPanels;
    for (; left.begin + most <= left.end; left.begin += most) some_panels<Kind, most>(task, left.begin);
    if constexpr (most > 1) last_panels<Kind, most - 1>(task, left);
}

// Bytes of scratch per thread for matrices of up to k inputs.
long scratch_bytes(long k) { return std::max(kBytePanels * k / kBlock * kByteBlock, kFloatPanels * k * kLanes * 4); }

// y [rows, n] = or += x . w; each thread computes its share of the outputs.
void product(const Activations& x, long rows, const Matrix& w, float* y, bool adds, uint8_t* scratch, long thread,
             long threads) {
    const Range mine = share((w.n + kLanes - 1) / kLanes, thread, threads);
    const auto run = [&](auto kind, const Stored& stored) {
        all_panels<decltype(kind)>({x, rows, w, stored, y, adds, scratch}, mine);
    };
    const auto read = [&](auto kind) { run(kind, {kind.panel_bytes(w), nullptr}); };
    const auto unpack = [&](auto packed, auto kind) { run(kind, {packed.panel_bytes(w), packed.unpack}); };
    // What nibbles are unpacked to for many rows. Where small bytes have no advantage they are treated as any others.
    using Nibbles = Quantised<Layout::kNibbles>;
    using Many = Quantised<Dots::kTakesNibbles ? Layout::kSmallBytes : Layout::kBytes>;
    using ManyFloats = Float<kFloatRows, kFloatPanels>;
    switch (w.format) {
        case kBytes: return read(Quantised<Layout::kBytes>());
        case kNibbles: return rows <= kRowsReadPacked ? read(Nibbles()) : unpack(Nibbles(), Many());
        case kFloats: return rows <= kFewRows ? read(Float<kFewRows, kFewRowsPanels>()) : read(ManyFloats());
        default: with_held(w, [&](auto held) {
            if constexpr (held.kRowsReadPacked > 0) {  // not plain floats, which are above
                using Held = FloatOf<decltype(held), kFloatRows, kHeldPanels>;
                rows <= held.kRowsReadPacked ? read(Held()) : unpack(Held(), ManyFloats());
            }
        });
    }
}

}  // namespace
