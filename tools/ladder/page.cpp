#include "page.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "files.h"
#include "harness/project_root.h"

namespace flashladder {
namespace {

std::string part(const std::string& name) {
    return read_file(fmt::format("{}/tools/ladder/pages/{}.html", project_root(), name));
}

std::string escaped(const std::string& text) {
    std::string result;
    for (const char c : text) switch (c) {
            case '&':
                result += "&amp;";
                break;
            case '<':
                result += "&lt;";
                break;
            case '>':
                result += "&gt;";
                break;
            default:
                result += c;
        }
    return result;
}

/// For a <script>, which ends at the first "</script" and knows "<!--", whatever is around them. A learner's file need
/// not be UTF-8.
std::string in_script(const nlohmann::json& data) {
    std::string result;
    for (const char c : data.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace))
        if (c == '<')
            result += "\\u003c";  // in JSON it stands nowhere but in strings
        else
            result += c;
    return result;
}

}  // namespace

std::string page(const std::string& kind, const nlohmann::json& data) {
    const std::string frame = part("frame");
    std::string result;
    std::size_t done = 0;
    // In the frame alone: what is put in may say the same words.
    const auto put = [&](const std::string& words, const std::string& text) {
        const std::size_t at = frame.find(words, done);
        if (at == std::string::npos) throw std::runtime_error(fmt::format("pages/frame.html has no {}", words));
        result += frame.substr(done, at - done) + text;
        done = at + words.size();
    };
    const std::string title = escaped(data.at("title").get<std::string>());
    put("{{title}}", title);
    put("{{title}}", title);
    put("{{data}}", in_script(data));
    put("{{kind}}", part(kind));
    return result + frame.substr(done);
}

void write_page(const std::string& file, const std::string& kind, const nlohmann::json& data) {
    write_file(file, page(kind, data));
    fmt::print("\nThe page is in {}: open it in a browser\n", file);
}

nlohmann::json to_json(const Table& table, const std::string& title) {
    std::vector<bool> numbers;
    for (std::size_t c = 0; c < table.header().size(); ++c) numbers.push_back(table.has_numbers(c));
    return {{"title", title}, {"header", table.header()}, {"rows", table.rows()}, {"numbers", numbers}};
}

}  // namespace flashladder
