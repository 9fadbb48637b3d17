// Tables in Markdown files, made from result files. A table stands between two lines,
//   <!-- generated: NAME argument=value ... -->
//   <!-- end generated -->
// and what is between them belongs to the generator.
#pragma once

#include <string>

namespace flashladder {

inline const std::string generated_begin = "<!-- generated: ", generated_end = "<!-- end generated -->";

/// Makes every table of README.md, of the lessons and of their translations anew, and names the sections of translations
/// that are behind. Returns the exit status.
int write_docs();

/// Names every table and every committed starter that is not what the generators would write; 1 if there is one.
int check_docs();

}  // namespace flashladder
