// Which sections of a translation are behind.
#include "translations.h"

#include <doctest/doctest.h>

#include <array>
#include <string>
#include <vector>

namespace flashladder {
namespace {

const std::string original =
    "# A ladder\nOf rungs.\n\n## Two commands\n\n```\n# no heading\n```\n<!-- generated: ladder -->\n| 1 |\n"
    "<!-- end generated -->\n\n## `test`: what, why?\nText.\n\n## Two commands\nMore.\n";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
    REQUIRE_MESSAGE(text.find(from) != text.npos, from);
    return text.replace(text.find(from), from.size(), to);
}

/// As a translator leaves it.
std::string translated() {
    std::string text;
    for (const Section& section : sections_of(original))
        text += "## 第" + section.heading + "节\n" + original_mark(section) + "\n文\n";
    return text;
}

TEST_CASE("a section goes from its heading to the next, and has the anchor that GitHub gives it") {
    const auto sections = sections_of(original);
    REQUIRE(sections.size() == 4);
    CHECK(sections[0].name == "a-ladder");
    CHECK(sections[1].text.find("# no heading") != std::string::npos);
    CHECK(sections[2].name == "test-what-why");
    CHECK(sections[3].name == "two-commands-1");
    CHECK(sections_of("## 读：两条 `./ladder` 命令（一）\n")[0].name == "读两条-ladder-命令一");
}

TEST_CASE("a translation of the text as it stands is not behind") {
    CHECK(behind(translated(), original).empty());
    CHECK(age_in_words(translated(), original) == "译文与英文原文一致。\n");
}

TEST_CASE("what generators write, and how lines are wrapped, makes no translation old") {
    CHECK(behind(translated(), replaced(original, "| 1 |", "| 2 |\n| 3 |")).empty());
    CHECK(behind(translated(), replaced(original, "Of rungs.", "Of\nrungs.")).empty());
    CHECK(behind(translated(), replaced(original, "generated: ladder", "generated: lists")).size() == 1);
}

TEST_CASE("the section that has changed is named, with the mark that makes it new") {
    const std::vector<std::array<std::string, 3>> changes = {{"Of rungs.", "Of steps.", "第A ladder节"},
                                                             {"# no heading", "# none", "第Two commands节"},
                                                             {"Text.", "Text", "第`test`: what, why?节"},
                                                             {"More.", "More. And more.", "第Two commands节"}};
    for (const auto& [from, to, heading] : changes) {
        const std::string changed = replaced(original, from, to);
        const auto found = behind(translated(), changed);
        REQUIRE_MESSAGE(found.size() == 1, from);
        CHECK(found[0].section.heading == heading);
        CHECK(found[0].what == "has changed");
        const std::string words = age_in_words(translated(), changed);
        CHECK_MESSAGE(words.find("[" + heading + "](#") != words.npos, words);

        // Its mark is the line that the translator writes in place of the old one.
        const std::string old_mark = found[0].section.text.substr(0, found[0].section.text.find('\n'));
        CHECK(behind(replaced(translated(), old_mark, found[0].mark), changed).empty());
    }
}

TEST_CASE("sections that are new, gone or without a mark are named") {
    const auto added = behind(translated(), original + "## New\nText.\n");
    REQUIRE(added.size() == 1);
    CHECK(added[0].section.heading == "New");
    CHECK(added[0].what == "is not translated");
    CHECK(age_in_words(translated(), original + "## New\n").find("：New。") != std::string::npos);

    const auto gone = behind(translated(), original.substr(0, original.rfind("## Two")));
    REQUIRE(gone.size() == 1);
    CHECK(gone[0].what == "is gone");

    const auto unmarked = behind(translated() + "## 多\n文\n", original);
    REQUIRE(unmarked.size() == 1);
    CHECK(unmarked[0].what == "has no mark of its original");
}

TEST_CASE("a translation stands beside its original") {
    CHECK(translation_of("README.md") == "README.zh.md");
    CHECK(translation_of("chapters/00-standard-attention/README.md") == "chapters/00-standard-attention/README.zh.md");
}

}  // namespace
}  // namespace flashladder
