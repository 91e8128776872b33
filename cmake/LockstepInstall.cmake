# `cmake --install`: the command and its worker, one archive, the headers, and what find_package
# and pkg-config need.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS lockstep lockstep-worker RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS lockstep_library lockstep_usage lockstep_torch lockstep_pcre2 lockstep_hwloc
  lockstep_uring lockstep_dnnl EXPORT LockstepTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/lockstep DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h" PATTERN "cli" EXCLUDE)

set(config_folder ${CMAKE_INSTALL_LIBDIR}/cmake/Lockstep)
install(EXPORT LockstepTargets NAMESPACE Lockstep:: DESTINATION ${config_folder})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/LockstepConfig.cmake.in
  ${PROJECT_BINARY_DIR}/LockstepConfig.cmake INSTALL_DESTINATION ${config_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/LockstepConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/LockstepConfig.cmake
  ${PROJECT_BINARY_DIR}/LockstepConfigVersion.cmake DESTINATION ${config_folder})

# LibTorch has no pkg-config file of its own: its folders and libraries are named here.
set(LOCKSTEP_TORCH_CFLAGS "")
foreach(folder ${TORCH_INCLUDE_DIRS})
  # The compiler's own folders must keep their place in its order.
  if(NOT folder STREQUAL "/usr/include")
    string(APPEND LOCKSTEP_TORCH_CFLAGS " -isystem ${folder}")
  endif()
endforeach()
file(RELATIVE_PATH LOCKSTEP_PC_INCLUDE /${CMAKE_INSTALL_LIBDIR}/pkgconfig
  /${CMAKE_INSTALL_INCLUDEDIR})
configure_file(${PROJECT_SOURCE_DIR}/cmake/lockstep.pc.in ${PROJECT_BINARY_DIR}/lockstep.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/lockstep.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
