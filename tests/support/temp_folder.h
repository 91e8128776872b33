/// A folder of a test's own, removed with all it holds.
#pragma once

#include "lockstep/files/temp_folder.h"

namespace lockstep::testing {

struct TempFolder : files::TempFolder {
  TempFolder() : files::TempFolder("test") {}
};

}  // namespace lockstep::testing
