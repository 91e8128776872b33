#include "lockstep/base/shallow_json.h"

#include <gtest/gtest.h>

#include <string>

namespace lockstep::base {
namespace {

TEST(ShallowJson, EndsBeforeTheHundredAndFirstBracket) {
  const std::string hundred = std::string(60, '[') + std::string(40, '{');
  EXPECT_EQ(shallow_json(hundred), hundred);
  EXPECT_EQ(shallow_json(hundred + "[1]"), hundred);
  EXPECT_EQ(shallow_json(hundred + "{\"a\":1}"), hundred);
  EXPECT_EQ(shallow_json(hundred + "}[1"), hundred + "}[1");
  std::string pairs;
  for (int i = 0; i < 1000; ++i) pairs += "[{}],";
  EXPECT_EQ(shallow_json(pairs), pairs);
}

TEST(ShallowJson, BracketsInTextAreText) {
  const std::string brackets(200, '[');
  for (const std::string& text :
       {"\"" + brackets + "\"", "\"\\\"" + brackets, "{\"a\\\\\\\"" + brackets + "\":1}"}) {
    EXPECT_EQ(shallow_json(text), text);
  }
  EXPECT_EQ(shallow_json("\"\\\\\"" + brackets), "\"\\\\\"" + std::string(100, '['));
  EXPECT_EQ(shallow_json("\"\\"), "\"\\");
  EXPECT_EQ(shallow_json(""), "");
}

}  // namespace
}  // namespace lockstep::base
