#include "lockstep/torch_inside/graph_end.h"

#include <torch/torch.h>

#include <gtest/gtest.h>

namespace lockstep::torch_inside {
namespace {

TEST(GraphEnd, BackwardIsThatOfTheTensor) {
  const at::Tensor a = torch::randn({3, 5}).requires_grad_();
  const at::Tensor b = a.detach().clone().requires_grad_();
  const at::Tensor gradient = torch::randn({3, 5});
  (a.tanh() * 2 + a).backward(gradient);
  GraphEnd end(b.tanh() * 2 + b);
  end.backward(gradient);
  EXPECT_TRUE(at::equal(a.grad(), b.grad()));
}

/// What the graph did not save is freed with the result.
TEST(GraphEnd, KeepsNoBytesOfTheResult) {
  const at::Tensor x = torch::ones({4}).requires_grad_();
  c10::weak_intrusive_ptr<c10::StorageImpl> storage(c10::intrusive_ptr<c10::StorageImpl>{});
  std::unique_ptr<GraphEnd> end;
  {
    const at::Tensor y = x + 1;
    storage = c10::weak_intrusive_ptr<c10::StorageImpl>(
        c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(y.storage().unsafeGetStorageImpl()));
    end = std::make_unique<GraphEnd>(y);
    EXPECT_FALSE(storage.expired());
  }
  EXPECT_TRUE(storage.expired());
  end->backward(torch::full({4}, 3.0));
  EXPECT_EQ(x.grad()[0].item<float>(), 3.0f);
}

TEST(GraphEnd, AResultWithoutAGraphHasNothingToDo) {
  GraphEnd end(torch::ones({2}));
  EXPECT_NO_THROW(end.backward(torch::ones({2})));
}

}  // namespace
}  // namespace lockstep::torch_inside
