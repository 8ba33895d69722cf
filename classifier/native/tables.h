// Hash tables of reader.cpp: the artefact's pieces and tagged words, and the distinct substrings of one text.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <string_view>

#include "letters.h"

namespace {

uint32_t hash_of(string_view key) {
  uint32_t hash = 2166136261u;
  for (char c : key) hash = (hash ^ static_cast<uint8_t>(c)) * 16777619u;
  return hash ^ (hash >> 15);
}

// Pieces and tagged words. A slot is half a cache line and contains its whole key.
struct Slot {
  char key[23];
  uint8_t length;
  int32_t id;      // of the piece, or -1
  int16_t tags[2]; // or -1
};
static_assert(sizeof(Slot) == 32);

struct Table {
  Slot *slots = nullptr;
  uint32_t mask = 0;

  ~Table() { delete[] slots; }

  bool reserve(long count) {
    uint32_t size = 64;
    while (size < 2 * static_cast<uint64_t>(count) + 2) size *= 2;
    slots = new (std::nothrow) Slot[size];
    if (!slots) return false;
    for (uint32_t at = 0; at < size; at++) slots[at] = Slot{{}, 0, -1, {-1, -1}};
    mask = size - 1;
    return true;
  }

  Slot *find(string_view key) const {
    for (uint32_t at = hash_of(key) & mask;; at = (at + 1) & mask) {
      Slot &slot = slots[at];
      if (slot.length == 0) return &slot;
      if (slot.length == key.size() && std::memcmp(slot.key, key.data(), key.size()) == 0) return &slot;
    }
  }

  Slot *add(string_view key) {
    if (key.empty() || key.size() > sizeof(Slot::key)) return nullptr;
    Slot *slot = find(key);
    std::memcpy(slot->key, key.data(), key.size());
    slot->length = static_cast<uint8_t>(key.size());
    return slot;
  }

  const Slot *get(string_view key) const {
    if (key.empty() || key.size() > sizeof(Slot::key)) return nullptr;
    const Slot *slot = find(key);
    return slot->length ? slot : nullptr;
  }
};

// The distinct substrings of one text with their counts, in order of first occurrence. Lives on the stack of a call.
struct Bag {
  const char *text;
  uint32_t mask = 127;
  uint16_t slots[8192]; // used as far as a text of this size can need
  uint16_t starts[kMaxText], lengths[kMaxText], counts[kMaxText];
  int16_t stamps[kMaxText];
  int size = 0;

  Bag(const char *text, size_t length) : text(text) {
    while (mask < 2 * length && mask < 8191) mask = 2 * mask + 1;
  }

  string_view key(int number) const { return {text + starts[number], lengths[number]}; }

  int add(string_view key_of) { // returns its number
    if (!size) std::memset(slots, 0, (mask + 1) * sizeof(uint16_t)); // lazily, as most texts have no options
    for (uint32_t at = hash_of(key_of) & mask;; at = (at + 1) & mask) {
      int number = slots[at] - 1;
      if (number < 0) {
        slots[at] = static_cast<uint16_t>(size + 1);
        starts[size] = static_cast<uint16_t>(key_of.data() - text);
        lengths[size] = static_cast<uint16_t>(key_of.size());
        counts[size] = 1;
        stamps[size] = -1;
        return size++;
      }
      if (key(number) == key_of) {
        counts[number]++;
        return number;
      }
    }
  }
};

} // namespace
