// Pages of HTML that show one run: `--page` of `ladder timeline` and `ladder profile`.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "table.h"

namespace flashladder {

/// A page that needs no other file: tools/ladder/pages/frame.html around pages/`kind`.html, and the data that its
/// script shows. `data` has "title"; "about", a line below it; "tables", where there are any: to_json() of each.
std::string page(const std::string& kind, const nlohmann::json& data);

/// Writes it, and says so.
void write_page(const std::string& file, const std::string& kind, const nlohmann::json& data);

/// A table with a title. Which of its columns have numbers is in there, too.
nlohmann::json to_json(const Table& table, const std::string& title);

}  // namespace flashladder
