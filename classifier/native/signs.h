// What reader.cpp finds in a text besides words: options, numbers, sentences, names and code, as features.py does.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tables.h"

namespace {

struct Options {
  int count = 0;
  int words = 0;
  int numeric = 0;
  int in_bags = 0;
  int different = 0;
};

struct Numbers {
  int count = 0;
  int characters = 0;
  int longest = 0;
  int decimals = 0;
  int different = 0;
};

string_view strip(string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

// Calls `each` with the parts between blanks.
template <typename Each> void split(string_view text, Each each) {
  for (size_t at = 0; at < text.size();) {
    while (at < text.size() && is_blank(text[at])) at++;
    size_t start = at;
    while (at < text.size() && !is_blank(text[at])) at++;
    if (at > start) each(text.substr(start, at - start));
  }
}

// features._OPTION: line start, blanks, optional bracket, a letter A to J, one of ".):".
bool option_on(string_view line, size_t &start) {
  size_t at = 0;
  while (at < line.size() && (line[at] == ' ' || line[at] == '\t')) at++;
  if (at < line.size() && line[at] == '(') at++;
  if (at + 1 >= line.size() || line[at] < 'A' || line[at] > 'J') return false;
  if (line[at + 1] != '.' && line[at + 1] != ')' && line[at + 1] != ':') return false;
  at += 2;
  while (at < line.size() && (line[at] == ' ' || line[at] == '\t')) at++;
  start = at;
  return true;
}

template <class Characters> Options find_options(string_view capped, Characters &characters) {
  Options found;
  Bag bag(characters.options(), capped.size());
  for (size_t at = 0; at <= capped.size();) {
    size_t end = capped.find('\n', at);
    if (end == string_view::npos) end = capped.size();
    size_t start;
    if (option_on(capped.substr(at, end - at), start)) {
      string_view option = characters.lower_option(capped, at + start, end - at - start);
      split(option, [&](string_view word) {
        found.words++;
        int number = bag.add(word);
        if (bag.stamps[number] != found.count) {
          bag.stamps[number] = static_cast<int16_t>(found.count);
          found.in_bags++;
        }
      });
      string_view bare = strip(option);
      size_t first = 0;
      found.numeric += !bare.empty() && characters.is(kDigit, bare, first);
      found.count++;
    }
    at = end + 1;
  }
  found.different = bag.size;
  return found;
}

// Advances `at` past all characters of that kind.
template <class Characters> void pass(Is kind, string_view text, size_t &at, const Characters &characters) {
  for (size_t next = at; next < text.size() && characters.is(kind, text, next);) at = next;
}

template <class Characters> Numbers find_numbers(string_view text, const Characters &characters) {
  Numbers found;
  Bag bag(text.data(), text.size());
  for (size_t at = 0; at < text.size();) {
    size_t start = at;
    if (!characters.is(kDecimal, text, at)) continue;
    bool decimal = false;
    pass(kDecimal, text, at, characters);
    while (at + 1 < text.size() && (text[at] == '.' || text[at] == ',')) {
      size_t next = at + 1;
      if (!characters.is(kDecimal, text, next)) break;
      decimal |= text[at] == '.';
      at = next;
      pass(kDecimal, text, at, characters);
    }
    string_view number = text.substr(start, at - start);
    int length = characters.count(number);
    bag.add(number);
    found.count++;
    found.characters += length;
    found.decimals += decimal;
    if (length > found.longest) found.longest = length;
  }
  found.different = bag.size;
  return found;
}

int count_sentences(string_view text) {
  int found = 0;
  for (size_t at = 0; at < text.size(); at++)
    if (text[at] == '.' || text[at] == '!' || text[at] == '?') found += at + 1 == text.size() || is_blank(text[at + 1]);
  return found;
}

// features._NAMED: a capitalised word not at the start of a sentence.
int count_named(string_view text) {
  int found = 0;
  for (size_t at = 1; at + 2 < text.size(); at++)
    if (text[at] == ' ' && is_upper(text[at + 1]) && is_lower(text[at + 2])) {
      char before = text[at - 1];
      found += is_lower(before) || before == ',' || before == ';';
    }
  return found;
}

bool has_code(string_view text) {
  for (const char *sign : {"```", "def ", "#include", "import "})
    if (text.find(sign) != string_view::npos) return true;
  return false;
}

} // namespace
