#include "lockstep/torch_inside/saved_tensors.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::torch_inside {
namespace {

constexpr int64_t kWide = 160;  // kWide x kWide floats are more than 64 KiB

// Counts, and keeps a copy.
struct Counting {
  int packed = 0;
  int unpacked = 0;
  std::vector<const void*> data;

  SavedTensorScope::Pack pack() {
    return [this](const at::Tensor& tensor) -> SavedTensorScope::Unpack {
      ++packed;
      data.push_back(tensor.data_ptr());
      return [this, copy = tensor.clone()] {
        ++unpacked;
        return copy;
      };
    };
  }
};

at::Tensor leaf() { return torch::rand({kWide, kWide}).requires_grad_(); }

TEST(SavedTensors, GradientsAreTheSame) {
  torch::manual_seed(1);
  torch::nn::Sequential net(torch::nn::Linear(kWide, kWide), torch::nn::GELU(),
                            torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWide})),
                            torch::nn::Linear(kWide, kWide), torch::nn::Tanh());
  const at::Tensor x = torch::rand({kWide, kWide});
  const auto gradients = [&](const at::Tensor& loss) {
    net->zero_grad(true);
    loss.backward();
    std::vector<at::Tensor> all;
    for (const at::Tensor& p : net->parameters()) all.push_back(p.grad().clone());
    return all;
  };
  const auto expected = gradients(net->forward(x).pow(2).sum());
  Counting counting;
  at::Tensor loss;
  {
    const SavedTensorScope scope(counting.pack());
    loss = net->forward(x).pow(2).sum();
  }
  const auto found = gradients(loss);
  EXPECT_GE(counting.packed, 5);
  EXPECT_EQ(counting.unpacked, counting.packed);
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(torch::equal(found[i], expected[i])) << i;
}

TEST(SavedTensors, ParametersTheirViewsAndSmallTensorsStay) {
  const at::Tensor weight = leaf();
  const at::Tensor small = torch::rand({10}).requires_grad_();
  Counting counting;
  const SavedTensorScope scope(counting.pack());
  const at::Tensor x = leaf() + 0;
  (torch::mm(x, weight.t()).sum() + (small * small).sum()).backward();
  for (const void* data : counting.data) EXPECT_EQ(data, x.data_ptr());
  EXPECT_EQ(counting.packed, 1);
}

TEST(SavedTensors, WholeNumbersStay) {
  const at::Tensor table = leaf();
  const at::Tensor index = torch::zeros({100'000}, at::kLong);
  Counting counting;
  const SavedTensorScope scope(counting.pack());
  torch::embedding(table, index).sum().backward();
  EXPECT_EQ(counting.packed, 0);
  EXPECT_TRUE(table.grad().defined());
}

TEST(SavedTensors, CustomFunctionsAreSeen) {
  struct Square : torch::autograd::Function<Square> {
    static at::Tensor forward(torch::autograd::AutogradContext* context, at::Tensor x) {
      context->save_for_backward({x});
      return x * x;
    }
    static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::tensor_list gradients) {
      return {2 * context->get_saved_variables()[0] * gradients[0]};
    }
  };
  const at::Tensor x = leaf();
  Counting counting;
  at::Tensor y;
  {
    const SavedTensorScope scope(counting.pack());
    y = Square::apply(x + 0).sum();
  }
  y.backward();
  EXPECT_EQ(counting.packed, 1);
  EXPECT_TRUE(torch::equal(x.grad(), 2 * x.detach()));
}

TEST(SavedTensors, TheInnermostScopeIsAskedAndOnlyInItsThread) {
  const at::Tensor x = leaf();
  Counting outer;
  Counting inner;
  const SavedTensorScope first(outer.pack());
  {
    const SavedTensorScope second(inner.pack());
    (void)(x + 0).exp();
  }
  EXPECT_EQ(inner.packed, 1);
  EXPECT_EQ(outer.packed, 0);
  std::thread([&] { (void)(x + 0).exp(); }).join();
  EXPECT_EQ(outer.packed, 0);
  (void)(x + 0).exp();
  EXPECT_EQ(outer.packed, 1);
}

TEST(SavedTensors, AResultThatIsSavedDoesNotOwnItself) {
  const at::Tensor x = torch::rand({10}).requires_grad_();  // small: kept
  c10::weak_intrusive_ptr<c10::TensorImpl> result{c10::intrusive_ptr<c10::TensorImpl>()};
  {
    Counting counting;
    const SavedTensorScope scope(counting.pack());
    const at::Tensor y = x.exp();
    result = c10::weak_intrusive_ptr<c10::TensorImpl>(y.getIntrusivePtr());
    ASSERT_FALSE(result.expired());
  }
  EXPECT_TRUE(result.expired());
}

TEST(SavedTensors, AChangeInPlaceOfWhatWasKeptIsAnError) {
  const at::Tensor weight = leaf();
  Counting counting;
  const SavedTensorScope scope(counting.pack());
  const at::Tensor y = torch::mm(torch::rand({kWide, kWide}).requires_grad_(), weight).sum();
  {
    const at::NoGradGuard guard;
    weight.add_(1);
  }
  try {
    y.backward();
    FAIL() << "backward used the changed weight";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("[160, 160]"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("changed in place"), std::string::npos);
  }
}

TEST(SavedTensors, APackThatThrowsEndsTheForwardAndNothingElse) {
  const at::Tensor x = leaf();
  {
    const SavedTensorScope scope([](const at::Tensor&) -> SavedTensorScope::Unpack {
      throw StateError("the disk is full");
    });
    EXPECT_THROW((void)(x + 0).exp(), StateError);
  }
  (x + 0).exp().sum().backward();
  EXPECT_TRUE(torch::equal(x.grad(), x.detach().exp()));
}

}  // namespace
}  // namespace lockstep::torch_inside
