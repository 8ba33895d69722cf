// y = x . w of any number of rows, cut into tiles and shared out among threads.
#pragma once
#include <type_traits>

#include "threads.h"
#include "tiles.h"

namespace {

constexpr long kRowsReadPacked = 12;  // more rows than this repay unpacking nibbles into memory first

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

// What nibbles become where many rows read them. Where small bytes gain nothing they are read as any others.
using Unpacked = Quantised<Dots::kTakesNibbles ? Layout::kSmallBytes : Layout::kBytes>;

void unpack(const uint8_t* packed, long blocks, uint8_t* to) {
    for (long block = 0; block < blocks; ++block, packed += kNibbleBlock, to += kByteBlock) {
        std::memcpy(to, packed, kHeader);
        for (long i = 0; i < kGroups; ++i)
            store_bytes(to + kHeader + i * 64, Quantised<Layout::kNibbles>::group(packed, i));
    }
}

template <class Kind, int panels>
inline void some_panels(const Activations& x, long rows, const Matrix& w, long panel, float* y, bool adds,
                        uint8_t* scratch) {
    Place at{0, panel * kLanes, w.packed + panel * Kind::panel_bytes(w), y, adds};
    if constexpr (std::is_same_v<Kind, Quantised<Layout::kNibbles>>)
        if (rows > kRowsReadPacked) {
            unpack(at.weights, panels * w.k / kBlock, scratch);
            at.weights = scratch;
            return all_rows<Unpacked, panels>(x, rows, w, at);
        }
    all_rows<Kind, panels>(x, rows, w, at);
}

template <class Kind, int panels>
inline void last_panels(const Activations& x, long rows, const Matrix& w, Range left, float* y, bool adds,
                        uint8_t* scratch) {
    if (left.end - left.begin == panels) some_panels<Kind, panels>(x, rows, w, left.begin, y, adds, scratch);
    else if constexpr (panels > 1) last_panels<Kind, panels - 1>(x, rows, w, left, y, adds, scratch);
}

template <class Kind>
void all_panels(const Activations& x, long rows, const Matrix& w, Range left, float* y, bool adds, uint8_t* scratch) {
    constexpr int most = Kind::kMaxPanels;
    for (; left.begin + most <= left.end; left.begin += most)
        some_panels<Kind, most>(x, rows, w, left.begin, y, adds, scratch);
    if constexpr (most > 1) last_panels<Kind, most - 1>(x, rows, w, left, y, adds, scratch);
}

// Bytes of scratch that a thread needs for matrices of up to k inputs.
long scratch_bytes(long k) { return kBytePanels * k / kBlock * kByteBlock; }

// y [rows, n] = or += x . w; each thread takes its share of the outputs.
void product(const Activations& x, long rows, const Matrix& w, float* y, bool adds, uint8_t* scratch, long thread,
             long threads) {
    const Range mine = share((w.n + kLanes - 1) / kLanes, thread, threads);
    switch (w.format) {
        case kFloat: return all_panels<Float>(x, rows, w, mine, y, adds, scratch);
        case kBytes: return all_panels<Quantised<Layout::kBytes>>(x, rows, w, mine, y, adds, scratch);
        default: return all_panels<Quantised<Layout::kNibbles>>(x, rows, w, mine, y, adds, scratch);
    }
}

}  // namespace
