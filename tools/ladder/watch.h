// `ladder watch NN`: a learner's chapter is tested after every save.
#pragma once

#include "chapters.h"
#include "test.h"

namespace flashladder {

/// Tests the chapter, and again whenever its file is saved; a save meanwhile begins anew. On a terminal the last result
/// fills the screen, elsewhere one is printed behind the other. Ends at SIGINT, SIGTERM or SIGHUP, and nothing that it
/// has started goes on. Returns the exit status, as a shell has it of this signal.
int watch_chapter(const Chapter& chapter, TestOptions options);

}  // namespace flashladder
