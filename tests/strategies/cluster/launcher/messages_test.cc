#include "strategies/cluster/launcher/messages.h"

#include <csignal>
#include <string>
#include <variant>

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "tests/testing/error_of.h"

namespace cohort::launcher {
namespace {

TEST(Messages, AreReadBack) {
  const Join join = {1, "id", {{"a", "b"}}, {"n", "10.0.0.1", 3, 5, {1, 65535}, {7}}};
  const auto read = std::get<Join>(decode(encode(join)));
  EXPECT_EQ(read.terms, join.terms);
  EXPECT_EQ(read.node.workers, join.node.workers);
  EXPECT_EQ(read.node.rank, 3);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1})
    EXPECT_EQ(std::get<Signal>(decode(encode(Signal{signal, true, ""}))).number, signal);
  EXPECT_TRUE(std::holds_alternative<Ping>(decode(encode(Ping{}))));
  EXPECT_TRUE(std::get<Settle>(decode(encode(Settle{"", true}))).briefly);
  EXPECT_EQ(std::get<End>(decode(encode(End{"\xff\n"}))).reason, "\xEF\xBF\xBD\n") << "no UTF-8";
}

TEST(Messages, ThatAreNoneAreErrors) {
  const std::string join = encode(Join{1, "id", {}, {"n", "h", 0, 0, {1}, {}}});
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = join;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from << " in " << text;
    return text.replace(at, from.size(), to);
  };
  for (const std::string& text :
       {std::string(),
        std::string("{}"),
        std::string("[]"),
        std::string("{\"type\":3}"),
        std::string("{\"type\":\"none\"}"),
        std::string("{\"type\":\"finish\"}"),
        std::string("{\"type\":\"finish\",\"code\":1e300}"),
        std::string("{\"type\":\"finish\",\"code\":99999999999}"),
        std::string(100'000, '['),
        std::string("\xff\xfe"),
        with("[1]", "[0]"),
        with("[1]", "[65536]"),
        with("[1]", "[\"1\"]"),
        encode(Signal{SIGKILL, false, ""}),
        encode(Signal{0, false, ""}),
        encode(Signal{-SIGTERM, false, ""}),
        with("\"h\"", "\"a b\""),
        with("\"rank\":0", "\"rank\":-2"),
        join.substr(0, 30),
        std::string("{\"type\":\"start\",\"round\":{\"restart\":0,\"job_id\":\"\",\"index\":0,"
                    "\"nodes\":[]}}")}) {
    const Error error = testing::error_of([&] { decode(text); });
    EXPECT_EQ(error.code(), Code::kDataLoss) << error.what() << ": " << text.substr(0, 100);
  }
}

}  // namespace
}  // namespace cohort::launcher
