#include "lockstep/files/detail/safetensors_header.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/files/detail/shown.h"

namespace lockstep::files::detail {
namespace {

constexpr const char* kFields[] = {"dtype", "shape", "data_offsets"};

[[noreturn]] void bad(const std::string& reason) { throw StateError(reason); }

/// Takes the parser's events straight into the header: no tree of JSON values is built, nesting is
/// refused where it begins, and a key that comes twice is seen (a tree would keep one of the two).
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderReader(SafetensorsHeader* header) : header_(header) {}

  bool start_object(size_t) override {
    if (place_ == Place::start) return go(Place::names);
    if (place_ == Place::after_name && name_ == "__metadata__") return go(Place::metadata);
    if (place_ == Place::after_name) {
      info_ = {};
      begin_ = end_ = 0;
      fields_seen_ = 0;
      return go(Place::fields);
    }
    return misplaced("an object");
  }

  bool key(std::string& key) override {
    switch (place_) {
      case Place::names:
        name_ = std::move(key);
        if (name_ == "__metadata__") {
          if (metadata_seen_) bad("\"__metadata__\" is listed twice");
          metadata_seen_ = true;
        }
        return go(Place::after_name);
      case Place::metadata:
        if (header_->metadata.contains(key)) {
          bad(base::str("__metadata__ lists ", shown(key), " twice"));
        }
        field_ = std::move(key);
        return go(Place::after_metadata_key);
      default:  // fields: no other place has an object open
        if (key == "dtype") return field(0, Place::after_dtype);
        if (key == "shape") return field(1, Place::after_shape);
        if (key == "data_offsets") return field(2, Place::after_offsets);
        bad(base::str("tensor ", shown(name_), " has an unknown field ", shown(key)));
    }
  }

  bool string(std::string& value) override {
    if (place_ == Place::after_metadata_key) {
      header_->metadata[field_] = std::move(value);
      return go(Place::metadata);
    }
    if (place_ == Place::after_dtype) {
      info_.dtype = std::move(value);
      return go(Place::fields);
    }
    return misplaced("a string");
  }

  bool start_array(size_t) override {
    if (place_ == Place::after_shape) return go(Place::in_shape);
    if (place_ == Place::after_offsets) {
      offsets_read_ = 0;
      return go(Place::in_offsets);
    }
    return misplaced("an array");
  }

  bool number_unsigned(uint64_t value) override {
    if (place_ != Place::in_shape && place_ != Place::in_offsets) return misplaced("a number");
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      bad(base::str("tensor ", shown(name_), ": ", value, " is too large a number"));
    }
    const auto number = static_cast<int64_t>(value);
    if (place_ == Place::in_shape) {
      info_.shape.push_back(number);
    } else {
      if (offsets_read_ == 0) begin_ = number;
      if (offsets_read_ == 1) end_ = number;
      ++offsets_read_;
    }
    return true;
  }

  bool end_array() override {
    if (place_ == Place::in_offsets && offsets_read_ != 2) {
      bad(base::str("tensor ", shown(name_), " has ", offsets_read_, " data_offsets, not 2"));
    }
    return go(Place::fields);
  }

  bool end_object() override {
    if (place_ == Place::names) return go(Place::end);
    if (place_ == Place::fields) add_tensor();
    return go(Place::names);
  }

  bool null() override { return misplaced("null"); }
  bool boolean(bool) override { return misplaced("a boolean"); }
  bool number_integer(int64_t) override { return misplaced("a negative number"); }
  bool number_float(double, const std::string& text) override {
    return misplaced(shown(text) + ", no whole number below 2^63,");
  }
  bool binary(nlohmann::json::binary_t&) override { return misplaced("binary data"); }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    bad(base::str("the header is no valid JSON at its byte ", position));
  }

 private:
  enum class Place {
    start,
    names,
    after_name,
    metadata,
    after_metadata_key,
    fields,
    after_dtype,
    after_shape,
    after_offsets,
    in_shape,
    in_offsets,
    end
  };

  bool go(Place place) {
    place_ = place;
    return true;
  }

  bool field(int index, Place place) {
    if ((fields_seen_ >> index & 1) != 0) {
      bad(base::str("tensor ", shown(name_), " lists \"", kFields[index], "\" twice"));
    }
    fields_seen_ |= 1 << index;
    return go(place);
  }

  bool misplaced(const std::string& what) {
    const bool in_metadata = place_ == Place::after_metadata_key ||
                             (place_ == Place::after_name && name_ == "__metadata__");
    if (in_metadata) bad(base::str("__metadata__ holds ", what, "; it maps strings to strings"));
    bad(base::str("the header has ", what, " where none belongs",
                  name_.empty() ? "" : " (after " + shown(name_) + ")"));
  }

  void add_tensor() {
    for (int i = 0; i < 3; ++i) {
      if ((fields_seen_ >> i & 1) == 0) {
        bad(base::str("tensor ", shown(name_), " has no ", kFields[i]));
      }
    }
    const int bits = safetensors_dtype_bits(info_.dtype);
    if (bits == 0)
      bad(base::str("tensor ", shown(name_), " has unknown dtype ", shown(info_.dtype)));
    if (begin_ > end_) {
      bad(base::str("tensor ", shown(name_), " begins at ", begin_, ", after its end ", end_));
    }
    const int64_t bytes = tensor_bytes(bits, info_.shape);
    if (bytes < 0) bad(base::str("tensor ", shown(name_), " has an impossible shape"));
    if (bytes != end_ - begin_) {
      bad(base::str("tensor ", shown(name_), " needs ", bytes,
                    " bytes by its shape and dtype, but has ", end_ - begin_));
    }
    info_.offset = begin_;
    info_.bytes = bytes;
    header_->tensors.emplace_back(name_, std::move(info_));
  }

  SafetensorsHeader* header_;
  Place place_ = Place::start;
  std::string name_;   // of the tensor being read
  std::string field_;  // of __metadata__
  SafetensorsFile::Info info_;
  int64_t begin_ = 0;
  int64_t end_ = 0;
  int offsets_read_ = 0;
  bool metadata_seen_ = false;
  unsigned fields_seen_ = 0;  // a bit for each of kFields
};

/// Positions of `tensors` by name. A sort has no bad case, as a hash table has for whoever picks
/// the names.
std::vector<uint32_t> in_name_order(
    const std::vector<std::pair<std::string, SafetensorsFile::Info>>& tensors) {
  std::vector<uint32_t> order(tensors.size());
  std::iota(order.begin(), order.end(), 0U);
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return tensors[a].first < tensors[b].first; });
  const auto twice = std::adjacent_find(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return tensors[a].first == tensors[b].first;
  });
  if (twice != order.end()) bad(base::str(shown(tensors[*twice].first), " is listed twice"));
  return order;
}

}  // namespace

int64_t tensor_bytes(int dtype_bits, const std::vector<int64_t>& shape) {
  // A zero anywhere makes the tensor empty, but the product of the others must not overflow
  // unseen, so it is checked first.
  int64_t bits = dtype_bits;
  bool empty = false;
  for (const int64_t size : shape) {
    if (size < 0) return -1;
    if (size == 0)
      empty = true;
    else if (__builtin_mul_overflow(bits, size, &bits))
      return -1;
  }
  if (empty) return 0;
  return bits % 8 == 0 ? bits / 8 : -1;
}

SafetensorsHeader parse_safetensors_header(std::string_view text, int64_t data_bytes) {
  if (!text.starts_with('{')) bad("the header does not begin with {");
  // The JSON parser takes a zero byte for the end of its input and would not see what follows.
  if (const auto zero = text.find('\0'); zero != std::string_view::npos) {
    bad(base::str("the header has a zero byte at its byte ", zero));
  }
  SafetensorsHeader header;
  HeaderReader reader(&header);
  nlohmann::json::sax_parse(text.begin(), text.end(), &reader);

  auto& tensors = header.tensors;
  std::stable_sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second.offset, a.second.bytes) < std::pair(b.second.offset, b.second.bytes);
  });
  header.by_name = in_name_order(tensors);
  int64_t covered = 0;
  for (const auto& [name, info] : tensors) {
    if (info.offset != covered) {
      bad(base::str("tensor ", shown(name), " begins at byte ", info.offset, " of the data, but ",
                    info.offset > covered ? "bytes before it belong to no tensor, from "
                                          : "another tensor holds the bytes up to ",
                    covered));
    }
    covered += info.bytes;
    if (covered > data_bytes) {
      bad(base::str("tensor ", shown(name), " ends at byte ", covered,
                    " of the data, but there are ", data_bytes, ": the file is cut short"));
    }
  }
  if (covered != data_bytes) {
    bad(base::str("the tensors end at byte ", covered, " of the data, but there are ", data_bytes));
  }
  return header;
}

}  // namespace lockstep::files::detail
