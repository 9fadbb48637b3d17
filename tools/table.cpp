#include "table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace flashladder {
namespace {

bool is_number(const std::string& cell) {
    return !cell.empty() && cell.find_first_not_of("0123456789.+-ex %") == std::string::npos;
}

}  // namespace

std::string Table::plain() const {
    std::vector<std::size_t> widths;
    for (const std::string& cell : header_) widths.push_back(cell.size());
    for (const auto& row : rows_)
        for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
    const auto line = [&](const std::vector<std::string>& row) {
        std::string text;
        for (std::size_t c = 0; c < row.size(); ++c) {
            const bool right = !rows_.empty() && is_number(rows_.front()[c]);
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
    for (std::size_t c = 0; c < header_.size(); ++c)
        text += !rows_.empty() && is_number(rows_.front()[c]) ? "---:|" : "---|";
    text += "\n";
    for (const auto& row : rows_) text += fmt::format("| {} |\n", fmt::join(row, " | "));
    return text;
}

}  // namespace flashladder
