#include "lockstep/kernels/gemm.h"

#include <algorithm>
#include <dnnl.hpp>
#include <unordered_map>
#include <utility>

#include "lockstep/base/str.h"

namespace lockstep::kernels {
namespace {

using dnnl::memory;

struct Key {
  Gemm gemm;
  bool biased = false;
  bool operator==(const Key&) const = default;
};

struct KeyHash {
  size_t operator()(const Key& key) const {
    size_t hash = static_cast<size_t>(key.gemm.type) * 2 + (key.biased ? 1 : 0);
    const auto mix = [&](int64_t value) {
      hash = (hash ^ static_cast<size_t>(value)) * 0x9e3779b97f4a7c15U;
    };
    for (const int64_t value :
         {key.gemm.m, key.gemm.n, key.gemm.k, key.gemm.left_stride, key.gemm.right_stride,
          key.gemm.into_stride, int64_t{key.gemm.transpose_left}, int64_t{key.gemm.transpose_right},
          int64_t{key.gemm.adds}}) {
      mix(value);
    }
    return hash;
  }
};

/// A primitive and the places of its arguments.
struct Prepared {
  dnnl::matmul primitive;
  std::unordered_map<int, memory> arguments;
};

dnnl::engine& cpu() {
  static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::matmul make_primitive(const Key& key) {
  const Gemm& g = key.gemm;
  const auto type = g.type == OperandType::bf16 ? memory::data_type::bf16 : memory::data_type::f32;
  const auto strides = [](bool transposed, int64_t stride) {
    return transposed ? memory::dims{1, stride} : memory::dims{stride, 1};
  };
  const memory::desc left({g.m, g.k}, type, strides(g.transpose_left, g.left_stride));
  const memory::desc right({g.k, g.n}, type, strides(g.transpose_right, g.right_stride));
  const memory::desc into({g.m, g.n}, memory::data_type::f32, memory::dims{g.into_stride, 1});
  dnnl::primitive_attr attributes;
  if (g.adds) {
    dnnl::post_ops sum;
    sum.append_sum(1.0F);
    attributes.set_post_ops(sum);
  }
  const memory::desc bias({1, g.n}, memory::data_type::f32, memory::dims{g.n, 1});
  const auto operation = key.biased ? dnnl::matmul::desc(left, right, bias, into)
                                    : dnnl::matmul::desc(left, right, into);
  return dnnl::matmul(dnnl::matmul::primitive_desc(operation, attributes, cpu()));
}

Prepared prepare(const Key& key) {
  Prepared prepared{.primitive = make_primitive(key), .arguments = {}};
  const dnnl::matmul::primitive_desc shape(
      const_cast<dnnl_primitive_desc_t>(prepared.primitive.get_primitive_desc()));
  const auto place = [&](int argument, const memory::desc& desc) {
    prepared.arguments.emplace(argument, memory(desc, cpu(), nullptr));
  };
  place(DNNL_ARG_SRC, shape.src_desc());
  place(DNNL_ARG_WEIGHTS, shape.weights_desc());
  place(DNNL_ARG_DST, shape.dst_desc());
  if (key.biased) place(DNNL_ARG_BIAS, shape.bias_desc());
  return prepared;
}

}  // namespace

Gemm packed_gemm(OperandType type, int64_t m, int64_t n, int64_t k, bool transpose_left,
                 bool transpose_right) {
  return {.type = type,
          .m = m,
          .n = n,
          .k = k,
          .transpose_left = transpose_left,
          .transpose_right = transpose_right,
          .left_stride = transpose_left ? m : k,
          .right_stride = transpose_right ? k : n,
          .into_stride = n};
}

void gemm(const Gemm& product, const void* left, const void* right, float* into,
          const float* bias) {
  if (product.m == 0 || product.n == 0) return;
  if (product.k == 0) {
    for (int64_t row = 0; row < product.m; ++row) {
      float* out = into + row * product.into_stride;
      if (!product.adds) std::fill_n(out, product.n, 0.0F);
      for (int64_t i = 0; bias != nullptr && i < product.n; ++i) out[i] += bias[i];
    }
    return;
  }
  thread_local std::unordered_map<Key, Prepared, KeyHash> prepared;
  thread_local dnnl::stream stream(cpu());
  const Key key{.gemm = product, .biased = bias != nullptr};
  auto found = prepared.find(key);
  if (found == prepared.end()) {
    // Generation sees a new length with every token.
    if (prepared.size() >= 1024) prepared.clear();
    found = prepared.emplace(key, prepare(key)).first;
  }
  auto& arguments = found->second.arguments;
  arguments.at(DNNL_ARG_SRC).set_data_handle(const_cast<void*>(left));
  arguments.at(DNNL_ARG_WEIGHTS).set_data_handle(const_cast<void*>(right));
  arguments.at(DNNL_ARG_DST).set_data_handle(into);
  if (key.biased) arguments.at(DNNL_ARG_BIAS).set_data_handle(const_cast<float*>(bias));
  found->second.primitive.execute(stream, arguments);
}

bool has_bf16_products() {
  static const bool has = [] {
    try {
      make_primitive({.gemm = packed_gemm(OperandType::bf16, 16, 16, 16, false, true)});
      return true;
    } catch (const dnnl::error&) {
      return false;
    }
  }();
  return has;
}

std::string gemm_library() {
  const dnnl_version_t& version = *dnnl::version();
  const auto instructions = [] {
    switch (dnnl::get_effective_cpu_isa()) {
      case dnnl::cpu_isa::sse41:
        return "sse41";
      case dnnl::cpu_isa::avx:
        return "avx";
      case dnnl::cpu_isa::avx2:
        return "avx2";
      case dnnl::cpu_isa::avx2_vnni:
        return "avx2_vnni";
      case dnnl::cpu_isa::avx512_core:
        return "avx512";
      case dnnl::cpu_isa::avx512_core_vnni:
        return "avx512_vnni";
      case dnnl::cpu_isa::avx512_core_bf16:
        return "avx512_bf16";
      case dnnl::cpu_isa::avx512_core_amx:
        return "amx";
      default:
        return "other";
    }
  }();
  return base::str("dnnl-", version.major, ".", version.minor, ".", version.patch, "-",
                   instructions);
}

}  // namespace lockstep::kernels
