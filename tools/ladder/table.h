// A table of text, for the terminal and for Markdown.
#pragma once

#include <string>
#include <vector>

namespace flashladder {

class Table {
public:
    explicit Table(std::vector<std::string> header) : header_(std::move(header)) {}
    void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }

    bool empty() const { return rows_.empty(); }
    const std::vector<std::string>& header() const { return header_; }
    const std::vector<std::vector<std::string>>& rows() const { return rows_; }
    /// Whether there are numbers, "4.2 MB" is one, in all cells of a column that are not empty.
    bool has_numbers(std::size_t column) const;
    /// Columns padded to their widest cell; numbers to the right, text to the left.
    std::string plain() const;
    std::string markdown() const;

private:
    std::vector<std::string> header_;
    std::vector<std::vector<std::string>> rows_;
};

/// "8.59 GB", "4.2 MB", "33 KB".
std::string readable_bytes(double bytes);

}  // namespace flashladder
