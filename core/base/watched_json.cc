#include "core/base/watched_json.h"

#include <cstddef>

namespace cohort {
namespace {

using Json = nlohmann::json;

// The one error of nlohmann::json that is of a text in order.
constexpr int kOverflow = 406;

class Events final : public nlohmann::json_sax<Json> {
 public:
  explicit Events(JsonWatch& watch) : watch_(watch) {}

  bool null() override { return value(); }
  bool boolean(bool) override { return value(); }
  bool number_integer(number_integer_t) override { return value(); }
  bool number_unsigned(number_unsigned_t) override { return value(); }
  bool number_float(number_float_t, const string_t&) override { return value(); }
  bool string(string_t&) override { return value(); }
  bool binary(binary_t&) override { return value(); }
  bool start_object(size_t) override { return open(true); }
  bool start_array(size_t) override { return open(false); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    watch_.key(name);
    return true;
  }
  // Ends the watch: the document's own parser then says what is wrong.
  bool parse_error(size_t, const std::string& token,
                   const nlohmann::detail::exception& error) override {
    if (error.id == kOverflow) watch_.overflow(token);
    return false;
  }

 private:
  bool value() {
    watch_.value();
    return true;
  }
  bool open(bool is_object) {
    watch_.open(is_object);
    return true;
  }
  bool close() {
    watch_.close();
    return true;
  }

  JsonWatch& watch_;
};

}  // namespace

nlohmann::json parse_watched(std::string_view text, JsonWatch& watch) {
  Events events(watch);
  Json::sax_parse(text, &events);
  return Json::parse(text);
}

}  // namespace cohort
