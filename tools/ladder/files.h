// Whole files as strings.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace flashladder {

/// Throws std::runtime_error, naming the file, if it cannot be read.
std::string read_file(const std::string& path);

/// The lines of a text, without their ends; views of it.
std::vector<std::string_view> lines_of(std::string_view text);

/// Up to the end of the first line.
std::string first_line(const std::string& text);

constexpr std::size_t line_of_a_table = 60, whole_line = std::string::npos;  // characters

/// The line of a source file that "file:17" names, without its indentation and cut where a table has no more room; "" if
/// it cannot be read. The file is one of the project's, if its path does not say more.
std::string source_line(const std::string& place, std::size_t width = line_of_a_table);

/// Writes beside it and renames, so that a file is never half written; leaves a file alone that holds this text
/// already. Follows links to the file itself; a device or a pipe is written in place. Makes missing folders. Throws
/// std::runtime_error, naming the file.
void write_file(const std::string& path, std::string_view text);

/// Throws std::runtime_error, as write_file() would, if it could not write this file; a device or a pipe it does not
/// try. Changes nothing but missing folders.
void check_can_be_written(const std::string& path);

}  // namespace flashladder
