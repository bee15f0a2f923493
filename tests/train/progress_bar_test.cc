#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <iostream>
#include <regex>
#include <sstream>
#include <sys/ioctl.h>
#include <unistd.h>

#include "core/base/notice.h"
#include "tests/train/testing.h"

namespace cohort {
namespace {

using cohort::testing::classifier;
using cohort::testing::die_after;
using cohort::testing::fit;
using cohort::testing::Hooks;
using cohort::testing::points;
using cohort::testing::script;

TEST(ProgressBar, WritesPlainLinesWhereThereIsNoTerminal) {
  std::ostringstream out;
  fit(classifier(), 1, {callbacks::ProgressBar({.out = &out, .live = false})});
  const std::string text = out.str();
  EXPECT_EQ(text.rfind("Epoch 1/1\n1/1 [==============================] - ", 0), 0u) << text;
  EXPECT_NE(text.find(" - accuracy: "), std::string::npos) << text;
  EXPECT_EQ(text.find('\r'), std::string::npos);
}

TEST(ProgressBar, DrawsOverItsLineOnATerminal) {
  std::ostringstream out;
  fit(classifier(), 2,
      {callbacks::ProgressBar({.out = &out, .live = true}), script("loss", {0.5, 0.25}),
       callbacks::EarlyStopping({.monitor = "accuracy", .start_from_epoch = 5})});
  EXPECT_EQ(out.str().rfind("Epoch 1/2\n\r1/1 [", 0), 0u) << out.str();
  EXPECT_NE(out.str().find("\x1b[K\nEpoch 2/2\n"), std::string::npos) << out.str();
}

TEST(ProgressBar, StandsBelowNotices) {
  std::ostringstream out;
  std::string before, after;
  auto hooks = std::make_shared<Hooks>();
  hooks->batch_end = [&](Training&) {
    before = out.str();
    print_notice("warning: slow\n");
    after = out.str();
  };
  ::testing::internal::CaptureStderr();
  fit(classifier(), 1, {callbacks::ProgressBar({.out = &out, .live = true}), hooks});
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "warning: slow\n");
  const std::string drawn = before.substr(before.rfind('\r'));
  EXPECT_TRUE(drawn.starts_with("\r1/1 [")) << before;
  EXPECT_EQ(after, before + "\r\x1b[K" + drawn);
}

TEST(ProgressBar, EndsItsLineWhenAnErrorEndsTraining) {
  std::ostringstream out;
  const auto train = [](const CallbackPtr& bar, int64_t die) {
    classifier().fit(points(40).batch(8),
                     {.callbacks = {bar, die_after(die)}, .verbose = Verbose::kSilent});
  };
  EXPECT_THROW(train(callbacks::ProgressBar({.out = &out, .live = true}), 1), Error);
  EXPECT_NE(out.str().find("1/5 ["), std::string::npos) << out.str();
  EXPECT_TRUE(out.str().ends_with("\x1b[K\n")) << out.str();

  out.str("");
  const CallbackPtr kept = callbacks::ProgressBar({.out = &out, .live = true});
  EXPECT_THROW(train(kept, 1), Error);
  train(kept, -1);
  EXPECT_NE(out.str().find("\x1b[K\nEpoch 1/1\n"), std::string::npos) << out.str();
}

// Standard output as a terminal of so many columns, until it is closed.
class Terminal {
 public:
  explicit Terminal(unsigned short columns)
      : master_(posix_openpt(O_RDWR | O_NOCTTY)), stdout_(dup(STDOUT_FILENO)) {
    if (master_ < 0 || grantpt(master_) != 0 || unlockpt(master_) != 0)
      fail(Code::kUnavailable, "there are no pseudo-terminals");
    const int slave = open(ptsname(master_), O_RDWR | O_NOCTTY);
    const winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    if (slave < 0 || ioctl(slave, TIOCSWINSZ, &size) != 0)
      fail(Code::kUnavailable, "there is no terminal to write to");
    flush();
    dup2(slave, STDOUT_FILENO);
    close(slave);
    setenv("TERM", "xterm", 1);
  }
  ~Terminal() {
    give_back();
    close(master_);
  }

  // What has been written to it.
  std::string close_and_read() {
    give_back();
    std::string text(1 << 16, '\0');
    size_t size = 0;
    for (ssize_t count; (count = read(master_, &text[size], text.size() - size)) > 0;)
      size += static_cast<size_t>(count);
    text.resize(size);
    return text;
  }

 private:
  static void flush() {
    std::cout.flush();
    std::fflush(stdout);
  }
  void give_back() {
    if (stdout_ < 0) return;
    flush();
    dup2(stdout_, STDOUT_FILENO);
    close(stdout_);
    stdout_ = -1;
  }

  const int master_;
  int stdout_;
};

TEST(ProgressBar, DrawsNoWiderThanTheTerminal) {
  Terminal terminal(60);
  classifier().fit(
      points(40).batch(8),
      {.epochs = 2, .callbacks = {callbacks::ProgressBar()}, .verbose = Verbose::kSilent});
  const std::string text = terminal.close_and_read();
  // A drawing is what is between two carriage returns; the last one of an epoch stays.
  static const std::regex drawing(R"(\r([^\r\n]*)\x1b\[K(\r\n)?)");
  int drawn_over = 0, whole = 0;
  for (std::sregex_iterator each(text.begin(), text.end(), drawing), end; each != end; ++each) {
    if ((*each)[2].matched) {
      ++whole;
      EXPECT_NE((*each)[1].str().find(" - loss: "), std::string::npos) << text;
    } else {
      ++drawn_over;
      EXPECT_LT((*each)[1].length(), 60) << text;
    }
  }
  EXPECT_EQ(whole, 2) << text;
  EXPECT_GE(drawn_over, 2) << "the first batch of each epoch: " << text;
}

TEST(ProgressBar, IsNotLiveElsewhereBecauseStandardOutputIsATerminal) {
  Terminal terminal(80);
  std::ostringstream out;
  fit(classifier(), 1, {callbacks::ProgressBar({.out = &out})});
  EXPECT_EQ(terminal.close_and_read(), "");
  EXPECT_TRUE(out.str().starts_with("Epoch 1/1\n1/1 [")) << out.str();
}

}  // namespace
}  // namespace cohort
