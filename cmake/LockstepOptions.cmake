# How every file of the project is compiled. The reasons stand beside the flags.
# Set in this directory and below it: a project that adds Lockstep keeps its own settings.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set_property(GLOBAL PROPERTY USE_FOLDERS ON)

if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2")
set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g")

set(LOCKSTEP_SANITIZE "" CACHE STRING "Sanitizers to build with: address,undefined or thread")

find_program(CCACHE ccache)
if(CCACHE)
  # A precompiled header is read by ccache only with these allowances.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${CCACHE})
endif()

# A project that adds Lockstep as a subfolder links these too.
set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)
find_package(Threads REQUIRED)
find_package(Torch REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(ZLIB REQUIRED)

find_package(OpenSSL REQUIRED COMPONENTS Crypto)

# Debian's PCRE2, hwloc and liburing have no CMake packages of their own; oneDNN's asks for OpenCL.
find_library(DNNL_LIBRARY dnnl REQUIRED)
add_library(lockstep_dnnl INTERFACE)
target_link_libraries(lockstep_dnnl INTERFACE ${DNNL_LIBRARY})
find_library(PCRE2_LIBRARY pcre2-8 REQUIRED)
add_library(lockstep_pcre2 INTERFACE)
target_link_libraries(lockstep_pcre2 INTERFACE ${PCRE2_LIBRARY})
find_library(HWLOC_LIBRARY hwloc REQUIRED)
add_library(lockstep_hwloc INTERFACE)
target_link_libraries(lockstep_hwloc INTERFACE ${HWLOC_LIBRARY})
find_library(URING_LIBRARY uring REQUIRED)
add_library(lockstep_uring INTERFACE)
target_link_libraries(lockstep_uring INTERFACE ${URING_LIBRARY})

add_library(lockstep_flags INTERFACE)
target_include_directories(lockstep_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_features(lockstep_flags INTERFACE cxx_std_20)
if(PROJECT_IS_TOP_LEVEL)
  target_compile_options(lockstep_flags INTERFACE -Wall -Wextra -Werror)
endif()
target_compile_options(lockstep_flags INTERFACE
  # GCC 12 warns of overlapping copies inside std::string where there are none (its bug 105329).
  -Wno-restrict
  # A fused multiply-add in one clone or on one machine only would end equal bits.
  -ffp-contract=off
  -fno-math-errno -fno-trapping-math)
# The packaged LibTorch is built with NDEBUG, which changes class layouts: every build type defines it.
target_compile_definitions(lockstep_flags INTERFACE NDEBUG)
target_link_libraries(lockstep_flags INTERFACE Threads::Threads)
if(LOCKSTEP_SANITIZE)
  # GCC takes its own checks for ways around an initialization: LibTorch's headers then warn.
  target_compile_options(lockstep_flags INTERFACE -fsanitize=${LOCKSTEP_SANITIZE}
    -fno-omit-frame-pointer -g -Wno-maybe-uninitialized)
  target_link_options(lockstep_flags INTERFACE -fsanitize=${LOCKSTEP_SANITIZE})
  target_compile_definitions(lockstep_flags INTERFACE LOCKSTEP_SANITIZED)
endif()

# What a program that links the library is compiled with.
add_library(lockstep_usage INTERFACE)
target_include_directories(lockstep_usage INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:include>)
target_compile_features(lockstep_usage INTERFACE cxx_std_20)
target_compile_definitions(lockstep_usage INTERFACE NDEBUG)
target_link_libraries(lockstep_usage INTERFACE Threads::Threads)

add_library(lockstep_torch INTERFACE)
target_include_directories(lockstep_torch SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
target_link_libraries(lockstep_torch INTERFACE ${TORCH_LIBRARIES})
