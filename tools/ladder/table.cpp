#include "table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace flashladder {
namespace {

/// "1.98x", "4.2 MB" and "17%" are numbers too.
bool is_number(const std::string& cell) {
    return !cell.empty() && cell.find_first_of("0123456789") == 0 &&
           cell.find_first_not_of("0123456789.+-ex %KMGB") == std::string::npos;
}

}  // namespace

bool Table::has_numbers(std::size_t column) const {
    bool any = false;
    for (const auto& row : rows_) {
        if (row[column].empty()) continue;
        if (!is_number(row[column])) return false;
        any = true;
    }
    return any;
}

std::string Table::plain() const {
    std::vector<std::size_t> widths;
    for (const std::string& cell : header_) widths.push_back(cell.size());
    for (const auto& row : rows_)
        for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
    const auto line = [&](const std::vector<std::string>& row) {
        std::string text;
        for (std::size_t c = 0; c < row.size(); ++c) {
            const bool right = has_numbers(c);
            text += right ? fmt::format("{:>{}}  ", row[c], widths[c]) : fmt::format("{:<{}}  ", row[c], widths[c]);
        }
        text.resize(text.find_last_not_of(' ') + 1);
        return text + "\n";
    };
    std::string text = line(header_);
    for (const auto& row : rows_) text += line(row);
    return text;
}

std::string Table::markdown() const {
    std::string text = fmt::format("| {} |\n|", fmt::join(header_, " | "));
    for (std::size_t c = 0; c < header_.size(); ++c) text += has_numbers(c) ? "---:|" : "---|";
    text += "\n";
    for (const auto& row : rows_) text += fmt::format("| {} |\n", fmt::join(row, " | "));
    return text;
}

std::string readable_bytes(double bytes) {
    if (bytes < 1e6) return fmt::format("{:.0f} KB", bytes / 1e3);
    return bytes < 1e9 ? fmt::format("{:.1f} MB", bytes / 1e6) : fmt::format("{:.2f} GB", bytes / 1e9);
}

}  // namespace flashladder
