#include "core/base/notice.h"

#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace cohort {
namespace {

// What a terminal is sent that shows both standard error and the lines that are drawn on `out`.
class Notices : public ::testing::Test {
 protected:
  ~Notices() override {
    set_notice_sink({});
    std::cerr.rdbuf(before_);
  }

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

TEST_F(Notices, GoToTheSinkAloneWhileThereIsOne) {
  std::string taken;
  set_notice_sink([&](std::string_view lines) { taken += lines; });
  LiveLine line(out_);
  line.draw("1/5 [=>...]");
  sent();
  print_notice("warning: \x1b[2J\nwarning: slow\n");
  EXPECT_EQ(taken, "warning: ?[2J\nwarning: slow\n");
  EXPECT_EQ(sent(), "");
  line.end();
  sent();
  set_notice_sink({});
  print_notice("warning: late\n");
  EXPECT_EQ(taken, "warning: ?[2J\nwarning: slow\n");
  EXPECT_EQ(sent(), "warning: late\n");
}

TEST_F(Notices, AreOnStandardErrorWhereTheSinkThrows) {
  set_notice_sink([](std::string_view) { throw std::runtime_error("the log is full"); });
  print_notice("warning: slow\n");
  print_notice("warning: slower\n");
  EXPECT_EQ(sent(), "warning: slow\nwarning: slower\n");
}

TEST_F(Notices, OfTheSinkItselfAreOnStandardError) {
  std::string taken;
  set_notice_sink([&](std::string_view lines) {
    print_notice("warning: long\n");
    taken += lines;
    set_notice_sink({});
    taken += "replaced";
  });
  print_notice("warning: slow\n");
  EXPECT_EQ(taken, "warning: slow\nreplaced");
  print_notice("warning: late\n");
  EXPECT_EQ(sent(), "warning: long\nwarning: late\n");
}

TEST_F(Notices, OfManyThreadsComeOneAtATime) {
  constexpr int kThreads = 4, kNotices = 200;
  std::vector<std::string> taken;  // whatever guards it is in print_notice()
  set_notice_sink([&](std::string_view lines) { taken.emplace_back(lines); });
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([] {
      for (int notice = 0; notice < kNotices; ++notice) print_notice("warning: slow\n");
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(taken, std::vector<std::string>(kThreads * kNotices, "warning: slow\n"));
}

}  // namespace
}  // namespace cohort
