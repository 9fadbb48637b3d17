// How a test case can end, to be seen by --expect-red and by `ladder test`: ctest runs each of these by its name.
#include <doctest/doctest.h>

#include <stdexcept>

namespace flashladder {
namespace {

TEST_CASE("passes") { CHECK(true); }
TEST_CASE("fails by CHECK") { CHECK(false); }
TEST_CASE("fails by CHECK_MESSAGE") { CHECK_MESSAGE(false, "why"); }
TEST_CASE("fails by FAIL_CHECK") { FAIL_CHECK("why"); }
TEST_CASE("fails by REQUIRE") { REQUIRE(false); }
TEST_CASE("fails by a remark") { WARN_MESSAGE(false, "more than is needed"); }
TEST_CASE("throws") { throw std::runtime_error("why"); }
TEST_CASE("only says something") { MESSAGE("nothing is wrong"); }

}  // namespace
}  // namespace flashladder
