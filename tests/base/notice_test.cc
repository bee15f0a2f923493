#include "core/base/notice.h"

#include <iostream>
#include <sstream>

#include <gtest/gtest.h>

namespace cohort {
namespace {

// What a terminal is sent that shows both standard error and the lines that are drawn on `out`.
class Notices : public ::testing::Test {
 protected:
  ~Notices() override { std::cerr.rdbuf(before_); }

  // Since it was last asked.
  std::string sent() {
    std::string text = out_.str();
    out_.str("");
    return text;
  }

  std::ostringstream out_;

 private:
  std::streambuf* const before_ = std::cerr.rdbuf(out_.rdbuf());
};

TEST_F(Notices, ArePrintedAsTheyAreWhereNoLineStands) {
  print_notice("warning: slow\n");
  EXPECT_EQ(sent(), "warning: slow\n");
  {
    LiveLine line(out_);
    print_notice("warning: not drawn yet\n");
    EXPECT_EQ(sent(), "warning: not drawn yet\n");
  }
  EXPECT_EQ(sent(), "");
}

TEST_F(Notices, AreAboveTheLineThatStands) {
  LiveLine line(out_);
  line.draw("1/5 [=>...]");
  EXPECT_EQ(sent(), "\r1/5 [=>...]\x1b[K");
  print_notice("warning: slow\n");
  EXPECT_EQ(sent(), "\r\x1b[Kwarning: slow\n\r1/5 [=>...]\x1b[K");
  line.draw("2/5 [==>..]");
  EXPECT_EQ(sent(), "\r2/5 [==>..]\x1b[K");
}

TEST_F(Notices, LeaveALineThatHasEndedWhereItIs) {
  LiveLine line(out_);
  line.draw("4/5 [===>.]");
  line.finish("5/5 [=====]");
  sent();
  print_notice("warning: slow\n");
  EXPECT_EQ(sent(), "warning: slow\n");
  line.draw("1/5 [=>...]");
  line.end();
  EXPECT_EQ(sent(), "\r1/5 [=>...]\x1b[K\n");
  line.end();
  print_notice("warning: slow\n");
  EXPECT_EQ(sent(), "warning: slow\n");
}

TEST_F(Notices, KnowNoLineThatHasGone) {
  {
    LiveLine line(out_);
    line.draw("1/5 [=>...]");
  }
  EXPECT_EQ(sent(), "\r1/5 [=>...]\x1b[K\n");
  print_notice("warning: slow\n");
  EXPECT_EQ(sent(), "warning: slow\n");
}

// As where a model is trained in a callback of another one.
TEST_F(Notices, AreAboveTheLineThatWasDrawnLast) {
  std::ostringstream other;
  LiveLine outer(other), inner(out_);
  outer.draw("outer");
  inner.draw("inner");
  sent();
  other.str("");
  print_notice("warning: slow\n");
  EXPECT_EQ(sent(), "\r\x1b[Kwarning: slow\n\rinner\x1b[K");
  outer.end();
  EXPECT_EQ(other.str(), "") << "the cursor is not in its line any more";
}

}  // namespace
}  // namespace cohort
