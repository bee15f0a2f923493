#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "proto/parameter_server.pb.h"
#include "strategies/parameter_server/service.h"
#include "strategies/parameter_server/spec_message.h"
#include "tests/strategies/parameter_server/raw_requests.h"
#include "tests/strategies/parameter_server/testing.h"

namespace cohort::testing {

// A server without network that holds "w", four zeros, and "bare", which has no update.
class Hostile : public ::testing::Test {
 protected:
  using Request = parameter_server::proto::Request;
  using Service = parameter_server::Service;

  Hostile()
      : service_({.job_id = "job",
                  .max_bytes = 1 << 20,
                  .threads = 1,
                  .notice = [](const std::string&) {}},
                 [] {}) {
    service_.create(whole_shard("w", kFour), floats({0, 0, 0, 0}));
    ShardSpec bare = whole_shard("bare", kFour);
    bare.update = {};
    service_.create(bare, floats({0, 0, 0, 0}));
  }

  class Recorder : public parameter_server::Caller {
   public:
    void resume() override {}
    void reply() override { answered_ = replied = true; }
    void refuse(const Error& error) override {
      if (answered_.exchange(true)) return;
      refused = error;
      replied = true;
    }
    bool has_gone() const override { return gone; }
    std::atomic<bool> replied = false, gone = false;
    std::optional<Error> refused;  // to be read once it has replied

   private:
    std::atomic<bool> answered_ = false;
  };

  static Request request() { return testing::request("worker:0"); }
  static parameter_server::proto::Push& add_push(Request& request) {
    auto& push = *request.mutable_update()->add_pushes();
    push.set_shard("w");
    push.set_sequence(1);
    push.set_learning_rate(1);
    push.set_rows(-1);
    push.set_payload_bytes(16);
    return push;
  }
  static parameter_server::proto::Create& add_create(Request& request) {
    parameter_server::write_shard_spec(whole_shard("new", kFour), request.mutable_create());
    request.mutable_create()->set_payload_bytes(16);
    return *request.mutable_create();
  }

  static Request write(uint64_t sequence) {
    Request request = Hostile::request();
    request.mutable_assign()->set_shard("w");
    request.mutable_assign()->set_payload_bytes(16);
    request.mutable_assign()->set_sequence(sequence);
    return request;
  }

  // What becomes of a request all bytes of whose payload are this one.
  Error outcome(const Request& request, char byte = '\0') {
    return outcome(request.SerializeAsString(), byte);
  }
  Error outcome(const std::string& header, char byte = '\0') {
    const auto caller = std::make_shared<Recorder>();
    Service::Session session;
    try {
      const auto exchange = service_.open(header, caller, session);
      const std::string bytes(std::min<uint64_t>(exchange->payload_bytes(), 1 << 20), byte);
      if (bytes.size() < exchange->payload_bytes()) return Error(Code::kUnknown, "cut off");
      if (!bytes.empty()) exchange->receive(bytes.data(), bytes.size());
      exchange->complete();
      while (!caller->replied) std::this_thread::yield();
      if (!caller->refused)
        while (const auto message = exchange->next_message()) {
          parameter_server::proto::Reply reply;
          // Who was to make that shard before has been refused, but has not gone yet.
          if (reply.ParseFromString(message->header) && reply.created().needs_value())
            return outcome(header, byte);
        }
    } catch (const Error& error) {
      return error;
    }
    return caller->refused.value_or(Error(Code::kUnknown, "no error"));
  }

  Service service_;
};

}  // namespace cohort::testing
