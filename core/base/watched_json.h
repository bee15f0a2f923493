#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace cohort {

// Told of what is in a JSON text, in its order, before there is a document: refuses, by throwing,
// what the document would hide (a key that comes twice) or what would take many times the text's
// memory or the stack (brackets in brackets, long lists).
class JsonWatch {
 public:
  virtual ~JsonWatch() = default;
  // An object or a list begins or ends.
  virtual void open(bool is_object) = 0;
  virtual void close() = 0;
  // Of an object, before the key's value.
  virtual void key(const std::string& name) = 0;
  // Neither an object nor a list.
  virtual void value() {}
  // A number that no double holds, as it is written, for which nlohmann::json throws otherwise.
  virtual void overflow(const std::string& /*number*/) {}
};

// The document that is all of `text`, in time and memory that grow as the text does. Throws what
// the watch throws, and nlohmann::json's exceptions for a text that is no JSON.
nlohmann::json parse_watched(std::string_view text, JsonWatch& watch);

}  // namespace cohort
