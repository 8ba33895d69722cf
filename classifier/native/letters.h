// Characters of a text for reader.cpp: ASCII by comparisons, all others by the facts that alphabet.py got from Python.
// Does per character what words.py does to a whole text; Python is asked where neighbouring characters matter.

#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace {

using std::string_view;

constexpr int kMaxText = 3072; // lower-case characters without accents: 1,001 Hangul syllables become 3,003
constexpr int kMaxBytes = 3 * kMaxText;

enum Status { kRead, kUnknown, kUnclean, kLeft };

// Flags, in the order of alphabet.py.
enum Is : uint16_t {
  kKnown = 1,
  kUnstable = 2, // the result of `clean` may depend on neighbours, or does not fit
  kForeign = 4,  // its lower case or its accent-free spelling does not fit
  kReadable = 8, // a letter or digit after cleaning
  kJoins = 16,   // forms words with its neighbours
  kAlpha = 32,
  kDecimal = 64,
  kDigit = 128,
  kCased = 256, // both decide the form of a neighbouring sigma
  kIgnorable = 512,
};

struct Letter {
  uint16_t is;
  uint8_t combining; // canonical combining class
  uint8_t cleaned_size, lowered_size, stripped_size;
  char cleaned[5], lowered[4], stripped[9];
};
static_assert(sizeof(Letter) == 24);

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; } // among what `clean` leaves
bool is_word(char c) { return is_lower(c) || is_digit(c); }                       // in lower case
bool is_control(char c) { return (static_cast<uint8_t>(c) < ' ' && !is_blank(c)) || c == 0x7f; }
bool is_ascii(char c) { return static_cast<uint8_t>(c) < 0x80; }
bool is_first(char c) { return (static_cast<uint8_t>(c) & 0xc0) != 0x80; } // first byte of a character
char lower_of(char c) { return is_upper(c) ? static_cast<char>(c + 32) : c; }

// The character at `at`, which is advanced past it. UTF-8 as Python writes it, including lone surrogates.
uint32_t take(string_view text, size_t &at) {
  uint8_t first = static_cast<uint8_t>(text[at++]);
  if (first < 0x80) return first;
  int more = first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
  uint32_t code = first & (0x3f >> more);
  while (more--) code = code << 6 | (static_cast<uint8_t>(text[at++]) & 0x3f);
  return code;
}

// The character before `at`, which is moved to its beginning.
uint32_t take_back(string_view text, size_t &at) {
  do at--;
  while (!is_first(text[at]));
  size_t from = at;
  return take(text, from);
}

// The text to read: cleaned by words.clean, in lower case, and in lower case without accents.
struct Text {
  string_view cleaned, lowered, stripped;
  int characters = 0, beyond_ascii = 0, lines = 0; // of `cleaned`
  bool is_readable = false;                        // definitely
  bool has_upper = true;                           // possibly has upper-case ASCII
};

// A text of ASCII only.
struct Ascii {
  string_view lowered;

  // Whether the character at `at`, which is advanced past it, is of that kind.
  bool is(Is kind, string_view text, size_t &at) const {
    char c = text[at++];
    return kind == kAlpha ? is_lower(c) : kind == kJoins ? is_word(c) : is_digit(c);
  }
  int count(string_view text) const { return static_cast<int>(text.size()); }
  string_view head(string_view text, size_t characters) const { return text.substr(0, characters); }
  const char *options() const { return lowered.data(); } // the buffer into which `lower_option` points
  string_view lower_option(string_view, size_t start, size_t size) const { return lowered.substr(start, size); }
};

// `lowered` also serves as the text without accents.
Text clean_ascii(string_view raw, char *cleaned, char *lowered) {
  Text out;
  size_t length = 0;
  bool has_upper = false;
  for (char c : raw) {
    if (is_control(c)) continue;
    out.lines += c == '\n';
    has_upper |= is_upper(c);
    cleaned[length] = c;
    lowered[length++] = lower_of(c);
  }
  out.cleaned = {cleaned, length};
  out.lowered = out.stripped = {lowered, length};
  out.characters = static_cast<int>(length);
  out.has_upper = has_upper;
  return out;
}

struct Buffer {
  size_t size = 0;
  char bytes[kMaxBytes + 16];

  string_view text() const { return {bytes, size}; }
  bool is_full() const { return size > kMaxBytes; }
  void add(char c) { bytes[size++] = c; }
  template <size_t kRoom> void add(const char (&from)[kRoom], int length) {
    std::memcpy(bytes + size, from, kRoom); // copies the full fixed size, which takes only one or two moves
    size += length;
  }
};

// A text of any characters. `letters` has a row per code point.
struct Unicode {
  const Letter *letters;
  Buffer cleaned, lowered, stripped, lowered_options;

  explicit Unicode(const Letter *letters) : letters(letters) {}

  bool is(Is kind, string_view text, size_t &at) const { return letters[take(text, at)].is & kind; }

  int count(string_view text) const {
    int found = 0;
    for (char c : text) found += is_first(c);
    return found;
  }

  string_view head(string_view text, int characters) const {
    size_t end = 0;
    while (end < text.size() && characters--) take(text, end);
    return text.substr(0, end);
  }

  const char *options() const { return lowered_options.bytes; }

  // Lowered separately, as in Python: text before an option must not affect its sigmas.
  string_view lower_option(string_view cleaned, size_t start, size_t size) {
    size_t from = lowered_options.size;
    lower(cleaned.substr(start, size), lowered_options);
    return lowered_options.text().substr(from);
  }

  // `raw` is the original text, or the result of words.clean.
  Status read(string_view raw, bool is_clean, Text &out) {
    Status status = clean(raw, is_clean, out);
    if (status != kRead) return status;
    out.cleaned = cleaned.text();
    out.characters = count(out.cleaned);
    for (char c : out.cleaned) out.beyond_ascii += is_first(c) && !is_ascii(c);
    if (!lower(out.cleaned, lowered) || !strip(lowered.text())) return kLeft;
    out.lowered = lowered.text();
    out.stripped = stripped.text();
    return count(out.lowered) > kMaxText || count(out.stripped) > kMaxText ? kLeft : kRead;
  }

private:
  // words.clean, unless a character may combine with or be reordered before a preceding one.
  Status clean(string_view raw, bool is_clean, Text &out) {
    int combining = 0;
    for (size_t at = 0; at < raw.size();) {
      if (cleaned.is_full()) return kLeft;
      char c = raw[at];
      if (is_ascii(c) && !is_control(c)) {
        cleaned.add(c);
        out.lines += c == '\n';
        out.is_readable |= is_word(lower_of(c));
        combining = 0;
        at++;
        continue;
      }
      const Letter &letter = letters[take(raw, at)];
      if (!(letter.is & kKnown)) return kUnknown;
      if (letter.is & kForeign) return kLeft;
      bool is_out_of_order = letter.combining && letter.combining < combining;
      if (!is_clean && (letter.is & kUnstable || is_out_of_order)) return kUnclean;
      cleaned.add(letter.cleaned, letter.cleaned_size);
      out.is_readable |= (letter.is & kReadable) != 0;
      if (letter.cleaned_size) combining = letter.combining;
    }
    return kRead;
  }

  bool lower(string_view text, Buffer &to) const {
    for (size_t at = 0; at < text.size() && !to.is_full();) {
      if (is_ascii(text[at])) {
        to.add(lower_of(text[at++]));
        continue;
      }
      size_t start = at;
      uint32_t code = take(text, at);
      if (code == 0x3a3)
        to.add(ends_word(text, start, at) ? "ς" : "σ", 2);
      else
        to.add(letters[code].lowered, letters[code].lowered_size);
    }
    return !to.is_full();
  }

  bool strip(string_view text) {
    for (size_t at = 0; at < text.size() && !stripped.is_full();) {
      if (is_ascii(text[at])) {
        stripped.add(text[at++]);
        continue;
      }
      const Letter &letter = letters[take(text, at)];
      stripped.add(letter.stripped, letter.stripped_size);
    }
    return !stripped.is_full();
  }

  // Whether there is a cased letter before `start` and none after `end`.
  bool ends_word(string_view text, size_t start, size_t end) const {
    uint16_t before = kIgnorable, behind = kIgnorable;
    while (start > 0 && before & kIgnorable) before = letters[take_back(text, start)].is;
    while (end < text.size() && behind & kIgnorable) behind = letters[take(text, end)].is;
    return (before & kCased) && !(behind & kCased);
  }
};

} // namespace
