// Translations of documents: README.zh.md stands beside README.md. Below each of its headings it says which section of
// the original it is, and of which text,
//   <!-- original: the-first-five-minutes 1a2b3c4d -->
// so that it is known which ones are behind.
#pragma once

#include <string>
#include <vector>

namespace flashladder {

/// A part of a document, from its heading to the next one.
struct Section {
    std::string heading;  // without '#'
    std::string name;     // its anchor, as GitHub makes it: "the-first-five-minutes"
    std::string text;     // what is below the heading
};

/// Sections of a document, in their order. Lines that begin with '#' in a block of code are none.
std::vector<Section> sections_of(const std::string& document);

/// "<!-- original: NAME HASH -->" for a section. Its hash is that of heading and words; how they are wrapped, and what
/// generators write, does not count.
std::string original_mark(const Section& section);

/// A section of which something is to be done.
struct Behind {
    Section section;   // of the translation; of the original if it is new
    std::string what;  // "has changed", "is not translated", "is gone"
    std::string mark;  // that it has to have then; "" for one that is gone
};
/// Which sections of `original` have changed since they were translated, are new, or are gone.
std::vector<Behind> behind(const std::string& translation, const std::string& original);

/// Path of the translation that belongs to a document: "README.md", "README.zh.md".
std::string translation_of(const std::string& path);

/// What a reader of the translation is told of its age, in its language.
std::string age_in_words(const std::string& translation, const std::string& original);

}  // namespace flashladder
