#include "blame.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "exercises.h"
#include "files.h"

namespace flashladder {
namespace {

/// What the compiler sees of a line, without spaces.
std::string code_of(std::string_view line) {
    std::string code(line.substr(0, line.find("//")));
    std::erase_if(code, [](char c) { return c == ' ' || c == '\t' || c == '\r'; });
    return code;
}

/// "5.1" of a line "    // EXERCISE 5.1 Do this"; "" of another.
std::string id_behind(std::string_view line, std::string_view marker) {
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    if (!line.starts_with(marker)) return "";
    line.remove_prefix(marker.size());
    return std::string(line.substr(0, line.find_first_of(" \t\r")));
}

struct Parts {
    std::vector<Answer> answers;
    std::map<std::string, std::string> code;  // by exercise; "" is what lies outside
};

Parts parts_of(std::string_view text) {
    Parts parts;
    Answer now;
    int number = 0;
    for (const std::string_view line : lines_of(text)) {
        ++number;
        if (const std::string id = id_behind(line, "// EXERCISE "); !id.empty() && now.id.empty()) {
            now = {id, number, 0, false};
            parts.code[""] += "\n" + id;  // what moves from before an exercise to behind it has changed, too
        }
        parts.code[now.id] += code_of(line);
        if (const std::string id = id_behind(line, "// END "); !id.empty() && id == now.id) {
            now.last = number;
            parts.answers.push_back(now);
            now = {};
        }
    }
    return parts;
}

}  // namespace

std::vector<Answer> answers(std::string_view learners, std::string_view starter) {
    Parts parts = parts_of(learners);
    const Parts begun = parts_of(starter);
    for (Answer& answer : parts.answers) {
        const auto same = begun.code.find(answer.id);
        answer.open = same != begun.code.end() && parts.code[answer.id] == same->second;
    }
    return parts.answers;
}

bool changed_outside(std::string_view learners, std::string_view starter) {
    return parts_of(learners).code[""] != parts_of(starter).code[""];
}

Trial trial_of(std::string_view learners, std::string_view solution, std::string_view own) {
    const std::vector<Answer> theirs = parts_of(learners).answers;
    std::map<std::string, std::vector<std::string_view>> right;
    const std::vector<std::string_view> finished = lines_of(solution);
    for (const Answer& answer : parts_of(solution).answers)
        right[answer.id] = {finished.begin() + answer.first - 1, finished.begin() + answer.last};

    Trial trial;
    const auto put = [&](std::string_view line, int number, const std::string& exercise = "") {
        trial.text += fmt::format("{}\n", line);
        trial.lines.push_back({number, exercise});
    };
    int number = 0;
    auto answer = theirs.begin();
    for (const std::string_view line : lines_of(learners)) {
        ++number;
        const bool inside = answer != theirs.end() && answer->first <= number;
        if (!inside || answer->id == own || !right.contains(answer->id))
            put(line, number);
        else if (number == answer->first)
            for (const std::string_view theirs_instead : right[answer->id]) put(theirs_instead, number, answer->id);
        if (inside && number == answer->last) ++answer;
    }
    return trial;
}

std::string with_learners_lines(std::string_view report, std::string_view trial_file, const Trial& trial,
                                const std::string& learners_file) {
    std::string text;
    const std::string place = fmt::format("{}:", trial_file);
    for (std::size_t at; (at = report.find(place)) != std::string_view::npos;) {
        std::size_t begin = at;  // of the path
        while (begin > 0 && report[begin - 1] != ' ' && report[begin - 1] != '\n') --begin;
        text += report.substr(0, begin);
        report.remove_prefix(at + place.size());
        std::size_t line = 0;
        const auto [end, error] = std::from_chars(report.data(), report.data() + report.size(), line);
        report.remove_prefix(static_cast<std::size_t>(end - report.data()));
        if (line < 1 || line > trial.lines.size()) continue;
        const auto& [number, exercise] = trial.lines[line - 1];
        text += fmt::format("{}:{}", learners_file, number);
        if (!exercise.empty()) text += fmt::format("{}{}", instead_of_theirs, exercise);
    }
    return text + std::string(report);
}

std::vector<std::string> named_in(std::string_view report, const std::string& learners_file,
                                  const std::vector<Answer>& answers) {
    std::vector<std::string> named;
    const std::string place = fmt::format("{}:", learners_file);
    // Above "source" stands also what came earlier, of which little need be wrong.
    for (const std::string_view part : {report.substr(std::min(report.find("\n  source "), report.size())), report})
        for (std::size_t at = 0; (at = part.find(place, at)) != std::string_view::npos;) {
            at += place.size();
            int line = 0;
            std::from_chars(part.data() + at, part.data() + part.size(), line);
            for (const Answer& answer : answers)
                if (answer.first <= line && line <= answer.last && !std::ranges::count(named, answer.id))
                    named.push_back(answer.id);
        }
    return named;
}

}  // namespace flashladder
