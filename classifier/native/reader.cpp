// Computes the classifier's figures for a prompt in one pass, as features.py, words.py and encoder.py do in Python.
// Those are the definition; tests/unit/classifier/test_reading.py and test_native_projector.py check the two against
// each other. Compiled with -ffp-contract=off, so that the hand-made features are equal to the last bit.
//
// Nothing is allocated after `breakeven_reader_new`, and a reader never changes. Any number of threads may read, as
// long as they hold the GIL, under which letters are learnt.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <new>
#include <string_view>

#include "letters.h"
#include "signs.h"
#include "tables.h"

namespace {

constexpr int kMaxAscii = 1024;      // words.cap lets 1,001 characters through
constexpr int kMaxWord = 40;         // words.MAX_WORD_CHARACTERS
constexpr int kFirstCommonId = 1996; // words.FIRST_COMMON_ID
constexpr double kRare = 9.0;        // features._RARE
constexpr float kLimit = 4.0f;       // encoder.LIMIT
constexpr int kMaxGroups = 64;
constexpr int kMarks = 8;
constexpr int kMaxSize = 512;

enum Mark { kMoney, kBackslash, kOperator, kBracket, kCode, kQuestion, kQuote, kComma };

// What `read` in features.py returns: hand-made features, and the pieces of each distinct word with its occurrences.
struct Reading {
  double hand[kMaxGroups + 64];
  int hand_size = 0;
  int ids[kMaxText];
  int counts[kMaxText];
  int pieces = 0;
  bool is_readable = false;
};

} // namespace

// All pointers belong to the caller and must outlive the reader. Arrays are C-contiguous.
struct Artefact {
  const char *words;           // whole pieces, inner pieces (without "##") and tagged words, concatenated
  const int32_t *lengths;      // of each
  const int32_t *ids;          // -1 for a word that is only tagged
  const int16_t *tags;         // two per whole piece or tagged word; -1 for none
  int64_t whole, inner;        // numbers of words; tags are for the whole ones
  const int8_t *token_vectors; // (pieces, dimensions)
  const float *token_weights, *token_scale, *centre, *spread, *trait_weights, *covariance, *length_weights, *damped;
  const int32_t *relations;    // groups counted in features.relations_in_prose
  const Letter *letters;       // per code point; alphabet.py fills in those that a text needs
  int32_t relation_count, groups, hand, dimensions, unknown, damped_size;
};

struct Projection {
  double first, second, variance, longer;
  int32_t is_readable;
  float vector[kMaxSize];
};

struct Reader {
  Artefact artefact;
  Table whole, inner;
  size_t longest = 0;

  // Greedy longest match; words.Vocabulary._spell. Returns the number of pieces written.
  int spell(string_view word, int *ids) const {
    int found = 0;
    for (size_t start = 0; start < word.size();) {
      const Table &table = start ? inner : whole;
      size_t end = word.size() < start + longest ? word.size() : start + longest;
      for (;; end--) {
        if (end == start) {
          ids[0] = artefact.unknown;
          return 1;
        }
        const Slot *slot = table.get(word.substr(start, end - start));
        if (slot && slot->id >= 0) {
          ids[found++] = slot->id;
          start = end;
          break;
        }
      }
    }
    return found;
  }

  template <class Characters>
  void read(const Text &text, Characters &characters, double whole_characters, Reading &out) const;
  void project(const Reading &reading, Projection &out) const;

  template <class Characters>
  void answer(const Text &text, Characters &characters, double whole_characters, Projection &out) const {
    Reading reading;
    read(text, characters, whole_characters, reading);
    project(reading, out);
  }
};

template <class Characters>
void Reader::read(const Text &text, Characters &characters, double whole_characters, Reading &out) const {
  const string_view capped = text.cleaned, lowered = text.lowered;
  Bag bag(text.stripped.data(), text.stripped.size());
  int parts = 0, words = 0, visible = 0;
  out.is_readable = text.is_readable;
  split(text.stripped, [&](string_view part) {
    parts++;
    visible += characters.count(part);
    for (size_t at = 0; at < part.size();) {
      size_t start = at;
      if (characters.is(kJoins, part, at)) {
        pass(kJoins, part, at, characters);
        out.is_readable = true;
      }
      bag.add(part.substr(start, at - start));
      words++;
    }
  });
  if (lowered.data() != text.stripped.data()) {
    parts = 0;
    split(lowered, [&](string_view) { parts++; }); // parts of accents only have vanished
  }

  long tags[kMaxGroups + kMarks] = {};
  double rarities = 0.0, rarest = 0.0;
  int alphabetic = 0, rare = 0;
  long repeats = 0;
  for (int number = 0; number < bag.size; number++) {
    string_view word = bag.key(number);
    int count = bag.counts[number], *ids = out.ids + out.pieces, pieces = 1;
    const Slot *slot = whole.get(word);
    if (slot)
      for (int tag : slot->tags)
        if (tag >= 0) tags[tag] += count;
    if (slot && slot->id >= 0)
      ids[0] = slot->id;
    else
      pieces = spell(characters.head(word, kMaxWord), ids);
    int last = 0;
    bool letters = true;
    for (size_t at = 0; at < word.size();) letters &= characters.is(kAlpha, word, at);
    for (int piece = 0; piece < pieces; piece++) {
      __builtin_prefetch(artefact.token_vectors + static_cast<int64_t>(ids[piece]) * artefact.dimensions);
      __builtin_prefetch(artefact.token_vectors + static_cast<int64_t>(ids[piece]) * artefact.dimensions + 64);
      if (ids[piece] > last) last = ids[piece];
      out.counts[out.pieces + piece] = count;
    }
    if (letters) {
      double rarity = std::log(static_cast<double>(last - kFirstCommonId > 1 ? last - kFirstCommonId : 1));
      rarities += rarity;
      if (rarity > rarest) rarest = rarity;
      rare += rarity > kRare;
      alphabetic++;
    }
    repeats += static_cast<long>(pieces) * count;
    out.pieces += pieces;
  }

  Options options = find_options(capped, characters);
  Numbers numbers = find_numbers(lowered, characters);
  int sentences = count_sentences(lowered);
  int stem_words = parts - options.words - options.count;
  if (stem_words < 0) stem_words = 0;
  double some = words ? words : 1, characters_read = text.characters ? text.characters : 1;
  double log_characters = std::log1p(whole_characters);
  double share = numbers.count / some;
  auto mark = [&](Mark which) { return std::log1p(static_cast<double>(tags[artefact.groups + which])); };

  double *next = out.hand;
  auto put = [&](double value) { *next++ = value; };
  put(log_characters);
  put(log_characters * log_characters / 10.0);
  put(std::log1p(stem_words));
  put(std::log1p(static_cast<double>(text.lines)));
  put(std::log1p(sentences));
  put(std::log1p(static_cast<double>(stem_words) / (sentences ? sentences : 1)));
  put(visible / some);
  put(bag.size / some);
  put(numbers.characters / characters_read);
  put(std::log1p(numbers.count));
  put(std::log1p(numbers.different));
  put(std::log1p(numbers.longest < 12 ? numbers.longest : 12));
  put(std::log1p(numbers.decimals));
  put(mark(kMoney));
  put(mark(kBackslash));
  put(mark(kOperator));
  put(mark(kBracket));
  put(mark(kCode));
  put(has_code(capped) ? 1.0 : 0.0);
  put(mark(kQuestion));
  put(mark(kQuote));
  put(mark(kComma));
  int any_options = options.count ? options.count : 1;
  put(options.count / 4.0);
  put(std::log1p(static_cast<double>(options.words) / any_options));
  put(static_cast<double>(options.numeric) / any_options);
  put(options.count < 2 || !options.in_bags
          ? 0.0
          : static_cast<double>(options.in_bags - options.different) / options.in_bags);
  put(text.has_upper ? std::log1p(count_named(capped)) : 0.0);
  put(text.beyond_ascii / characters_read);
  put(share < 0.5 ? share : 0.5);
  double some_alphabetic = alphabetic ? alphabetic : 1;
  put(rarities / some_alphabetic);
  put(rarest);
  put(rare / some_alphabetic);
  put(static_cast<double>(repeats) / some - 1.0);
  long relations = 0;
  for (int at = 0; at < artefact.relation_count; at++) relations += tags[artefact.relations[at]];
  put(std::log1p(static_cast<double>(relations)) * std::log1p(words) / 4.0);
  for (int group = 0; group < artefact.groups; group++) put(std::log1p(static_cast<double>(tags[group])));
  out.hand_size = static_cast<int>(next - out.hand);
}

void Reader::project(const Reading &reading, Projection &out) const {
  const Artefact &a = artefact;
  const int dimensions = a.dimensions, size = a.hand + dimensions;
  float *vector = out.vector, *pooled = vector + a.hand;
  for (int at = 0; at < a.hand; at++) vector[at] = static_cast<float>(reading.hand[at]);
  std::memset(pooled, 0, dimensions * sizeof(float));
  float total = 0.0f;
  for (int piece = 0; piece < reading.pieces; piece++) {
    int id = reading.ids[piece], count = reading.counts[piece];
    float weight = a.damped[count < a.damped_size ? count : a.damped_size - 1] * a.token_weights[id];
    const int8_t *row = a.token_vectors + static_cast<int64_t>(id) * dimensions;
    total += weight;
    for (int at = 0; at < dimensions; at++) pooled[at] += weight * static_cast<float>(row[at]);
  }
  if (reading.pieces)
    for (int at = 0; at < dimensions; at++) pooled[at] = pooled[at] * a.token_scale[at] / total;
  for (int at = 0; at < size; at++) {
    float value = (vector[at] - a.centre[at]) / a.spread[at];
    vector[at] = value < -kLimit ? -kLimit : value > kLimit ? kLimit : value;
  }
  out.first = out.second = out.variance = out.longer = 0.0;
  float spread[kMaxSize] = {}; // each covariance pair once, which halves the cache footprint
  for (int row = 0; row < size; row++) {
    const float *covariances = a.covariance + static_cast<int64_t>(row) * size;
    const float value = vector[row];
    out.variance -= 0.5 * covariances[row] * value * value;
    for (int at = row; at < size; at++) spread[at] += value * covariances[at];
  }
  for (int at = 0; at < size; at++) {
    double value = vector[at];
    out.first += value * a.trait_weights[2 * at];
    out.second += value * a.trait_weights[2 * at + 1];
    out.variance += value * spread[at];
    out.longer += value * a.length_weights[at];
  }
  out.variance *= 2.0;
  out.is_readable = reading.is_readable;
}

extern "C" {

// Null if memory is short or the artefact does not fit this reader.
Reader *breakeven_reader_new(const Artefact *artefact) {
  const Artefact &a = *artefact;
  if (a.groups > kMaxGroups || a.hand + a.dimensions > kMaxSize) return nullptr;
  Reader *reader = new (std::nothrow) Reader{a, {}, {}, 0};
  if (!reader) return nullptr;
  const char *word = a.words;
  bool fits = reader->whole.reserve(a.whole) && reader->inner.reserve(a.inner);
  for (int64_t at = 0; fits && at < a.whole + a.inner; word += a.lengths[at++]) {
    string_view key(word, a.lengths[at]);
    Slot *slot = (at < a.whole ? reader->whole : reader->inner).add(key);
    fits = slot != nullptr;
    if (!fits) break;
    slot->id = a.ids[at];
    for (int tag = 0; tag < 2 && at < a.whole; tag++) {
      slot->tags[tag] = a.tags[2 * at + tag];
      fits = fits && slot->tags[tag] < a.groups + kMarks;
    }
    if (key.size() > reader->longest) reader->longest = key.size();
  }
  Reading empty;
  Ascii none{};
  if (fits) reader->read({}, none, 0.0, empty);
  if (fits && empty.hand_size == a.hand) return reader;
  delete reader;
  return nullptr;
}

void breakeven_reader_free(Reader *reader) { delete reader; }

// `text` is capped and ASCII; `characters` is the length of the whole text, stripped. Returns a `Status`.
int breakeven_reader_project(const Reader *reader, const char *text, int32_t size, int32_t characters,
                             Projection *out) {
  if (size < 0 || size > kMaxAscii) return kLeft;
  char cleaned[kMaxAscii], lowered[kMaxAscii];
  Text read = clean_ascii({text, static_cast<size_t>(size)}, cleaned, lowered);
  Ascii ascii{read.lowered};
  reader->answer(read, ascii, static_cast<double>(characters), *out);
  return kRead;
}

// `text` is capped, with any characters: the original or, with `is_clean`, the result of words.clean.
int breakeven_reader_project_unicode(const Reader *reader, const char *text, int32_t size, int32_t characters,
                                     int32_t is_clean, Projection *out) {
  if (size < 0) return kLeft;
  Unicode unicode(reader->artefact.letters);
  Text read;
  Status status = unicode.read({text, static_cast<size_t>(size)}, is_clean, read);
  if (status == kRead) reader->answer(read, unicode, static_cast<double>(characters), *out);
  return status;
}
}
