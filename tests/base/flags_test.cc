#include "core/base/flags.h"

#include <cstdio>
#include <cstdlib>

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/base/program.h"

namespace cohort {
namespace {

Flags parse(std::vector<std::string> arguments) {
  std::vector<char*> argv = {const_cast<char*>("trainer")};
  for (auto& argument : arguments) argv.push_back(argument.data());
  return Flags(static_cast<int>(argv.size()), argv.data(), "Trains.");
}

template <typename F>
std::string error_of(F f) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(exit_code(error.code()), 2);
    return error.message();
  }
  return "no error";
}

TEST(Flags, ReadsValuesInEitherForm) {
  Flags flags =
      parse({"--epochs=7", "--rate", "0.5", "--fast", "--data_dir=/a=b", "--cache=false"});
  EXPECT_EQ(flags.integer("epochs", 1, ""), 7);
  EXPECT_EQ(flags.number("rate", 1, ""), 0.5);
  EXPECT_TRUE(flags.boolean("fast", false, ""));
  EXPECT_FALSE(flags.boolean("cache", true, ""));
  EXPECT_EQ(flags.text("data_dir", "", ""), "/a=b");
  flags.finish();
}

TEST(Flags, AbsentFlagsHaveTheirFallback) {
  Flags flags = parse({});
  EXPECT_EQ(flags.integer("epochs", 3, ""), 3);
  EXPECT_EQ(flags.text("device", "cpu", ""), "cpu");
  flags.finish();
}

TEST(Flags, TheLastOfSeveralWins) { EXPECT_EQ(parse({"--n=1", "--n=2"}).integer("n", 0, ""), 2); }

TEST(Flags, ANameThatContinuesAnotherIsAnother) {
  Flags flags = parse({"--epochs_total=4"});
  EXPECT_EQ(flags.integer("epochs", 1, ""), 1);
}

TEST(Flags, ErrorsNameFlagValueAndWhatIsAllowed) {
  EXPECT_EQ(error_of([] { parse({"--epochs=0"}).integer("epochs", 1, "", {.min = 1}); }),
            "--epochs=0 is not allowed: expected an integer, at least 1");
  EXPECT_EQ(error_of([] { parse({"--epochs=1.5"}).integer("epochs", 1, ""); }),
            "--epochs=1.5 is not allowed: expected an integer");
  EXPECT_EQ(error_of([] { parse({"--epochs="}).integer("epochs", 1, ""); }),
            "--epochs= is not allowed: expected an integer");
  EXPECT_EQ(error_of([] { parse({"--rate=2"}).number("rate", 0, "", {.min = 0, .max = 1}); }),
            "--rate=2 is not allowed: expected a number, at least 0, at most 1");
  EXPECT_EQ(error_of([] { parse({"--fast=maybe"}).boolean("fast", true, ""); }),
            "--fast=maybe is not allowed: expected true or false");
  EXPECT_EQ(error_of([] {
              parse({"--device=tpu"}).text("device", "cpu", "", {.choices = {"cpu", "gpu"}});
            }),
            "--device=tpu is not allowed: expected one of cpu, gpu");
  EXPECT_EQ(error_of([] { parse({"--epochs"}).integer("epochs", 1, ""); }),
            "--epochs needs a value: --epochs=...");
  EXPECT_EQ(error_of([] {
              parse({"--name", "--epochs=1"}).text("name", "", "");
            }),
            "--name needs a value: --name=...");
}

TEST(Flags, ATextMayHaveAValueWhenItStandsAlone) {
  const TextOptions options{.choices = {}, .alone = "trace.json"};
  const auto profile = [&](std::vector<std::string> arguments) {
    return parse(std::move(arguments)).text("profile", "", "", options);
  };
  EXPECT_EQ(profile({}), "");
  EXPECT_EQ(profile({"--profile"}), "trace.json");
  EXPECT_EQ(profile({"--profile=a"}), "a");
  Flags flags = parse({"--profile", "--epochs=2"});
  EXPECT_EQ(flags.text("profile", "", "", options), "trace.json");
  EXPECT_EQ(flags.integer("epochs", 1, ""), 2);
  flags.finish();
}

TEST(Flags, TellsWhichAreGiven) {
  const Flags flags = parse({"--epochs=7", "--rate", "0.5", "--fast", "--cache="});
  for (const char* name : {"epochs", "rate", "fast", "cache"}) EXPECT_TRUE(flags.is_given(name));
  for (const char* name : {"epoch", "rates", "0.5", ""}) EXPECT_FALSE(flags.is_given(name)) << name;
  EXPECT_FALSE(parse({"--epochs=7", "--help"}).is_given("epochs"));
}

TEST(Flags, AnUnknownFlagSuggestsTheNearest) {
  Flags flags = parse({"--epcohs=3"});
  flags.integer("epochs", 1, "");
  flags.text("data_dir", "", "");
  EXPECT_EQ(error_of([&] { flags.finish(); }),
            "unknown flag --epcohs; did you mean --epochs? (--help lists the flags)");
}

TEST(Flags, AnUnknownFlagThatIsLikeNoneSuggestsNothing) {
  for (const std::string unknown : {"--", "--zzz"}) {
    Flags flags = parse({unknown});
    flags.integer("epochs", 1, "");
    flags.text("logs", "", "");
    EXPECT_EQ(error_of([&] { flags.finish(); }),
              "unknown flag " + unknown + " (--help lists the flags)");
  }
}

TEST(Flags, AnArgumentThatIsNoFlagIsRefused) {
  Flags flags = parse({"train"});
  EXPECT_EQ(error_of([&] { flags.finish(); }), "unexpected argument \"train\"");
}

TEST(Flags, HelpListsFlagsAndWinsOverErrors) {
  Flags flags = parse({"--help", "--epochs=x"});
  EXPECT_EQ(flags.integer("epochs", 5, "passes over the data", {.min = 1, .max = 9}), 5);
  EXPECT_EQ(flags.number("rate", 0.5, "of learning"), 0.5);
  EXPECT_EQ(flags.help(),
            "Trains.\n\nUsage: trainer [flags]\n\n"
            "  --epochs  passes over the data, at least 1, at most 9; default 5\n"
            "  --rate  of learning; default 0.5\n");
  EXPECT_EXIT(flags.finish(), testing::ExitedWithCode(0), "");
}

TEST(Flags, HelpNamesWhatComesBehindThem) {
  std::string name = "run";
  char* argv[] = {name.data()};
  EXPECT_EQ(Flags(1, argv, "Runs.", "PROGRAM [ARGS...]").help(),
            "Runs.\n\nUsage: run [flags] PROGRAM [ARGS...]\n\n");
}

TEST(Flags, HelpThatCannotBeWrittenIsAnError) {
  const auto print_to_full_disk = [] {
    if (std::freopen("/dev/full", "w", stdout) == nullptr) std::_Exit(1);
    std::_Exit(run_main([] { parse({"--help"}).finish(); }));
  };
  EXPECT_EXIT(print_to_full_disk(), testing::ExitedWithCode(18),
              "RESOURCE_EXHAUSTED: cannot write standard output: No space left on device");
}

}  // namespace
}  // namespace cohort
