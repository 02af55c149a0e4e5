# Models in Zephyr applications.
#
#   crtexport_model(TARGET app NAME kws MODEL kws.tflite [options])
#   crtexport_model(TARGET app NAME kws PACKAGE kws.tar)
#
# The first exports the model while building, for the processor, ABI and memories of this very
# build, and again whenever the model or the exporter changes. The second takes a package that was
# exported before, after checking that its code fits this build. Either way TARGET can include
# tvmgen_<NAME>.h and call tvmgen_<NAME>_run().
#
#   BACKEND llvm|c            objects, or C sources that the build's compiler compiles
#   WORKSPACE static|caller   memory for intermediate results: the module's own, or the caller's
#   OPTIMIZE size|compact|balanced|speed
#   INPUTS CONST              inputs stay in flash, and take no RAM
#   SECTION name              linker section for a static workspace; by default as Kconfig says
#   SYSTEM_LIB                with the registry TVMSystemLibEntryPoint(); once in an image
#   OPTIONS ...               further options of `crtexport export`
#   LIBRARIES ...             targets that C sources in PACKAGE are compiled with and linked to
#
# How the exporter is found: -DCRTEXPORT=<program>; else the checkout that this file is part of, if
# the build's Python can run it; else the program crtexport in the search path.

include_guard(GLOBAL)

# The flags in ... that choose processor, ABI and code model. Of generator expressions those are
# understood that Zephyr wraps flags into: the language, and properties of targets.
function(crtexport_machine_flags out)
  set(found)
  foreach(flag IN LISTS ARGN)
    if(flag MATCHES "^\\$<\\$<COMPILE_LANGUAGE:([A-Z]+)>:(.*)>$")
      if(NOT CMAKE_MATCH_1 STREQUAL "C")
        continue()
      endif()
      set(flag "${CMAKE_MATCH_2}")
    endif()
    if(flag MATCHES "^\\$<TARGET_PROPERTY:([A-Za-z0-9_-]+),([A-Za-z0-9_]+)>$")
      set(flag)
      if(TARGET ${CMAKE_MATCH_1})
        get_property(flag TARGET ${CMAKE_MATCH_1} PROPERTY ${CMAKE_MATCH_2})
      endif()
    endif()
    foreach(part IN LISTS flag)
      string(REGEX REPLACE "^SHELL:" "" part "${part}")
      separate_arguments(words UNIX_COMMAND "${part}")
      foreach(word IN LISTS words)
        if(word MATCHES "^(-m.+|-f(no-)?(pic|PIC|pie|PIE|short-enums)|--target=.+|-ffreestanding)$")
          list(APPEND found "${word}")
        endif()
      endforeach()
    endforeach()
  endforeach()
  set(${out} "${found}" PARENT_SCOPE)
endfunction()

# The command that runs the exporter, as a list.
function(crtexport_find_program out)
  get_property(known GLOBAL PROPERTY CRTEXPORT_COMMAND)
  if(NOT known)
    get_filename_component(checkout ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../.. ABSOLUTE)
    if(CRTEXPORT)
      set(known ${CRTEXPORT})
    elseif(PYTHON_EXECUTABLE AND EXISTS ${checkout}/crtexport/__main__.py)
      set(run ${CMAKE_COMMAND} -E env PYTHONPATH=${checkout} ${PYTHON_EXECUTABLE} -m crtexport)
      execute_process(COMMAND ${run} --version
        RESULT_VARIABLE status OUTPUT_QUIET ERROR_VARIABLE problem)
      if(status EQUAL 0)
        set(known ${run})
      endif()
    endif()
    if(NOT known)
      find_program(CRTEXPORT_PROGRAM crtexport)
      if(NOT CRTEXPORT_PROGRAM)
        message(FATAL_ERROR "The exporter is not there. `pip install ${checkout}[zephyr]` installs it for "
          "the Python that builds Zephyr; -DCRTEXPORT=<program> names another.\n${problem}")
      endif()
      set(known ${CRTEXPORT_PROGRAM})
    endif()
    set_property(GLOBAL PROPERTY CRTEXPORT_COMMAND "${known}")
  endif()
  set(${out} "${known}" PARENT_SCOPE)
endfunction()

# Runs the exporter now; its words end the configuration if it fails.
function(crtexport_now)
  crtexport_find_program(program)
  execute_process(COMMAND ${program} ${ARGN} -q
    RESULT_VARIABLE status OUTPUT_QUIET ERROR_VARIABLE problem)
  if(NOT status EQUAL 0)
    string(STRIP "${problem}" problem)
    message(FATAL_ERROR "crtexport: ${problem}")
  endif()
endfunction()

# The flags that choose processor, ABI and code model for the C code of this build.
function(crtexport_build_flags out)
  get_property(flags TARGET zephyr_interface PROPERTY INTERFACE_COMPILE_OPTIONS)
  crtexport_machine_flags(flags "${CMAKE_C_FLAGS}" ${flags})
  if(CMAKE_C_COMPILER_TARGET)
    list(PREPEND flags --target=${CMAKE_C_COMPILER_TARGET})
  endif()
  set(${out} "${flags}" PARENT_SCOPE)
endfunction()

# What tells the exporter how this build compiles C: options of `crtexport zephyr board`.
function(crtexport_compiler_options out)
  crtexport_build_flags(flags)
  list(JOIN flags " " flags)
  set(${out} "--compiler" "${CMAKE_C_COMPILER}" "--flags" " ${flags}" PARENT_SCOPE)
endfunction()

# The compiler's own library, which has what models need of arithmetic that the processor lacks;
# empty where the compiler has none. Zephyr links it, too, but some versions before the libraries of
# applications, where a linker doesn't look again.
function(crtexport_compiler_library out)
  get_property(library GLOBAL PROPERTY CRTEXPORT_COMPILER_LIBRARY)
  if(NOT library)
    crtexport_build_flags(flags)
    execute_process(COMMAND ${CMAKE_C_COMPILER} ${flags} -print-libgcc-file-name
      RESULT_VARIABLE status OUTPUT_VARIABLE library OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(NOT status EQUAL 0 OR NOT EXISTS "${library}")
      set(library)
    endif()
    set_property(GLOBAL PROPERTY CRTEXPORT_COMPILER_LIBRARY "${library}")
  endif()
  set(${out} "${library}" PARENT_SCOPE)
endfunction()

# The board file that describes this build, derived once while configuring.
function(crtexport_board out)
  set(file ${CMAKE_BINARY_DIR}/crtexport/board.yaml)
  get_property(done GLOBAL PROPERTY CRTEXPORT_BOARD)
  if(NOT done)
    crtexport_compiler_options(compiler)
    crtexport_now(zephyr board ${CMAKE_BINARY_DIR} -o ${file} ${compiler})
    set_property(GLOBAL PROPERTY CRTEXPORT_BOARD TRUE)
  endif()
  set(${out} ${file} PARENT_SCOPE)
endfunction()

# The linker section for workspaces that Kconfig and devicetree ask for; empty for .bss.
function(crtexport_workspace_section out)
  set(section)
  if(CONFIG_CRTEXPORT_WORKSPACE_NOINIT)
    set(section ".noinit.crtexport")
  elseif(CONFIG_CRTEXPORT_WORKSPACE_SECTION)
    set(section "${CONFIG_CRTEXPORT_WORKSPACE_SECTION_NAME}")
  elseif(CONFIG_CRTEXPORT_WORKSPACE_CHOSEN)
    dt_chosen(node PROPERTY "crtexport,workspace")
    if(NOT DEFINED node)
      message(FATAL_ERROR "crtexport: CONFIG_CRTEXPORT_WORKSPACE_CHOSEN is set, but /chosen in the "
        "devicetree has no crtexport,workspace; add it in an overlay: "
        "/ { chosen { crtexport,workspace = &dtcm; }; };")
    endif()
    dt_node_has_status(enabled PATH "${node}" STATUS okay)
    if(NOT enabled)
      message(FATAL_ERROR "crtexport: crtexport,workspace is ${node}, which is not enabled: its "
        "status is not \"okay\"")
    endif()
    dt_chosen(ram PROPERTY "zephyr,sram")
    dt_chosen(dtcm PROPERTY "zephyr,dtcm")
    dt_prop(region PATH "${node}" PROPERTY "zephyr,memory-region")
    if("${node}" STREQUAL "${ram}")
      set(section)
    elseif("${node}" STREQUAL "${dtcm}")
      set(section ".dtcm_noinit")
    elseif(DEFINED region)
      # As LINKER_DT_NODE_REGION_NAME does.
      string(REGEX REPLACE "[^A-Za-z0-9_]" "_" section "${region}")
    else()
      message(FATAL_ERROR "crtexport: crtexport,workspace is ${node}, which is neither zephyr,sram "
        "nor zephyr,dtcm and has no zephyr,memory-region, so that no linker section leads there")
    endif()
  endif()
  set(${out} "${section}" PARENT_SCOPE)
endfunction()

function(crtexport_model)
  cmake_parse_arguments(PARSE_ARGV 0 arg "SYSTEM_LIB"
    "TARGET;NAME;MODEL;PACKAGE;BACKEND;WORKSPACE;OPTIMIZE;INPUTS;SECTION" "OPTIONS;LIBRARIES")
  crtexport_check_arguments()
  set(folder ${CMAKE_BINARY_DIR}/crtexport/${arg_NAME})
  # Folders of imported targets must be there before anything is built.
  file(MAKE_DIRECTORY ${folder}/include)
  if(arg_PACKAGE)
    crtexport_add_package()
  else()
    crtexport_add_export()
  endif()
  crtexport_compiler_library(library)
  set_property(TARGET crtexport_${arg_NAME} APPEND PROPERTY INTERFACE_LINK_LIBRARIES ${library})
  target_link_libraries(${arg_TARGET} PRIVATE crtexport_${arg_NAME})
endfunction()

# The functions below work in the scope of crtexport_model: they are macros in all but name.

macro(crtexport_check_arguments)
  if(NOT CONFIG_CRTEXPORT)
    message(FATAL_ERROR "crtexport_model() needs CONFIG_CRTEXPORT=y, in prj.conf for instance")
  endif()
  if(arg_UNPARSED_ARGUMENTS OR arg_KEYWORDS_MISSING_VALUES)
    message(FATAL_ERROR "crtexport_model(): what is ${arg_UNPARSED_ARGUMENTS} "
      "${arg_KEYWORDS_MISSING_VALUES}? ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/crtexport.cmake explains its arguments")
  endif()
  if(NOT arg_TARGET OR NOT TARGET ${arg_TARGET})
    message(FATAL_ERROR "crtexport_model(): TARGET must name the target that calls the model, as app")
  endif()
  if(NOT "${arg_NAME}" MATCHES "^[a-z0-9_]+$")
    message(FATAL_ERROR "crtexport_model(): NAME must consist of a-z, 0-9 and _, not '${arg_NAME}'; "
      "it is the name in tvmgen_<NAME>_run()")
  endif()
  if(TARGET crtexport_${arg_NAME})
    message(FATAL_ERROR "crtexport_model(): there is a model ${arg_NAME} already")
  endif()
  if((arg_MODEL AND arg_PACKAGE) OR NOT (arg_MODEL OR arg_PACKAGE))
    message(FATAL_ERROR "crtexport_model(NAME ${arg_NAME}): give either MODEL or PACKAGE")
  endif()
  if(arg_PACKAGE)
    foreach(word BACKEND WORKSPACE OPTIMIZE INPUTS OPTIONS SYSTEM_LIB)
      if(arg_${word})
        message(FATAL_ERROR "crtexport_model(NAME ${arg_NAME}): ${word} was decided when PACKAGE "
          "was exported")
      endif()
    endforeach()
  endif()
  foreach(word MODEL PACKAGE)
    if(arg_${word})
      get_filename_component(arg_${word} "${arg_${word}}" ABSOLUTE)
      if(NOT EXISTS ${arg_${word}})
        message(FATAL_ERROR "crtexport_model(NAME ${arg_NAME}): there is no file ${arg_${word}}")
      endif()
    endif()
  endforeach()
  if(NOT arg_BACKEND)
    set(arg_BACKEND ${CONFIG_CRTEXPORT_BACKEND})
  endif()
  if(NOT "${arg_BACKEND}" MATCHES "^(llvm|c)$")
    message(FATAL_ERROR "crtexport_model(NAME ${arg_NAME}): BACKEND is llvm or c, not '${arg_BACKEND}'")
  endif()
  if(NOT arg_WORKSPACE)
    set(arg_WORKSPACE static)
  endif()
  if(NOT arg_OPTIMIZE)
    set(arg_OPTIMIZE ${CONFIG_CRTEXPORT_OPTIMIZE})
  endif()
  if(DEFINED arg_INPUTS AND NOT arg_INPUTS STREQUAL "CONST")
    message(FATAL_ERROR "crtexport_model(NAME ${arg_NAME}): INPUTS can be CONST, not '${arg_INPUTS}'")
  endif()
  if(NOT DEFINED arg_SECTION)
    crtexport_workspace_section(arg_SECTION)
  endif()
endmacro()

# A model: exported while building.
macro(crtexport_add_export)
  # Dependency files name absolute paths; see the policy.
  cmake_policy(SET CMP0116 NEW)
  crtexport_find_program(program)
  crtexport_board(board)
  # Only these formats have no modules; the exporter looks into the others.
  if(NOT arg_MODEL MATCHES "\\.(tflite|onnx)$" OR "${arg_OPTIONS}" MATCHES "--accelerator")
    crtexport_now(zephyr sources ${arg_MODEL} ${board} ${arg_OPTIONS})
  endif()
  set(package ${folder}.tar)
  set(export ${program} export ${arg_MODEL} --board ${board} -o ${package} --emit ${arg_BACKEND}
    --optimize ${arg_OPTIMIZE} --workspace ${arg_WORKSPACE} --module-name ${arg_NAME}
    --unpack ${folder} --depfile ${folder}.d -q ${arg_OPTIONS})
  if(NOT arg_SYSTEM_LIB)
    list(APPEND export --no-system-lib)
  endif()
  if(arg_INPUTS)
    list(APPEND export --const-inputs)
  endif()
  set(header ${folder}/include/tvmgen_${arg_NAME}.h)
  set(archive)
  if(arg_BACKEND STREQUAL "llvm")
    set(wanted ${folder}/src/${arg_NAME}_objects.c)
    set(made ${folder}/lib${arg_NAME}.a)
    crtexport_archive_command(archive)
    set(archive COMMAND ${archive})
  else()
    set(made ${folder}/src/${arg_NAME}_lib0.c ${folder}/src/${arg_NAME}_lib1.c)
    if(arg_SYSTEM_LIB)
      list(APPEND made ${folder}/src/${arg_NAME}_lib2.c)
    endif()
    list(JOIN made "|" wanted)
  endif()
  set(sources ${CMAKE_COMMAND} -DFOLDER=${folder}/src -DWANTED=${wanted}
    -P ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/crtexport_sources.cmake)
  add_custom_command(
    OUTPUT ${package} BYPRODUCTS ${header} ${made}
    COMMAND ${export}
    COMMAND ${sources}
    ${archive}
    DEPENDS ${arg_MODEL} ${board} ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/crtexport_archive.cmake
    DEPFILE ${folder}.d
    COMMENT "Exporting model ${arg_NAME} (${arg_BACKEND})"
    VERBATIM COMMAND_EXPAND_LISTS)
  add_custom_target(crtexport_${arg_NAME}_export DEPENDS ${package})
  if(arg_BACKEND STREQUAL "llvm")
    crtexport_add_archive()
    add_dependencies(crtexport_${arg_NAME} crtexport_${arg_NAME}_export)
  else()
    crtexport_add_sources(crtexport_${arg_NAME} ${made})
    add_dependencies(crtexport_${arg_NAME} crtexport_${arg_NAME}_export)
  endif()
  add_dependencies(${arg_TARGET} crtexport_${arg_NAME}_export)
endmacro()

# A package: checked and unpacked while configuring, again when it changes.
macro(crtexport_add_package)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${arg_PACKAGE})
  crtexport_compiler_options(compiler)
  crtexport_now(zephyr check ${arg_PACKAGE} ${CMAKE_BINARY_DIR} ${compiler})
  crtexport_now(unpack ${arg_PACKAGE} ${folder})
  if(NOT EXISTS ${folder}/include/tvmgen_${arg_NAME}.h)
    file(GLOB names RELATIVE ${folder}/include ${folder}/include/tvmgen_*.h)
    message(FATAL_ERROR "crtexport_model(): ${arg_PACKAGE} has no model ${arg_NAME}; it has ${names}")
  endif()
  file(GLOB objects ${folder}/lib/*.o)
  file(GLOB sources ${folder}/src/*.c)
  # Sources without code, which stand for the objects of a package.
  file(GLOB headers RELATIVE ${folder}/include ${folder}/include/tvmgen_*.h)
  foreach(header IN LISTS headers)
    string(REGEX REPLACE "^tvmgen_(.*)\\.h$" "\\1" model ${header})
    list(REMOVE_ITEM sources ${folder}/src/${model}_objects.c)
  endforeach()
  if(objects)
    set(made ${folder}/lib${arg_NAME}.a)
    crtexport_archive_command(archive)
    execute_process(COMMAND ${archive} RESULT_VARIABLE status)
    if(NOT status EQUAL 0)
      message(FATAL_ERROR "crtexport: the objects of ${arg_PACKAGE} can't be archived")
    endif()
    crtexport_add_archive()
    if(sources)
      # Both: external functions are C, and large constants of C code are objects.
      crtexport_add_sources(crtexport_${arg_NAME}_sources ${sources})
      set_property(TARGET crtexport_${arg_NAME} PROPERTY
        INTERFACE_LINK_LIBRARIES crtexport_${arg_NAME}_sources)
      target_link_libraries(crtexport_${arg_NAME}_sources INTERFACE ${folder}/lib${arg_NAME}.a)
    endif()
  else()
    crtexport_add_sources(crtexport_${arg_NAME} ${sources})
  endif()
endmacro()

# The command that makes the archive of this model's objects, and of nothing else.
macro(crtexport_archive_command out)
  set(${out} ${CMAKE_COMMAND} -DAR=${CMAKE_AR} -DOBJCOPY=${CMAKE_OBJCOPY} -DNAME=${arg_NAME}
    -DFOLDER=${folder} -DARCHIVE=${folder}/lib${arg_NAME}.a "-DSECTION=${arg_SECTION}"
    -P ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/crtexport_archive.cmake)
endmacro()

macro(crtexport_add_archive)
  add_library(crtexport_${arg_NAME} STATIC IMPORTED GLOBAL)
  set_target_properties(crtexport_${arg_NAME} PROPERTIES
    IMPORTED_LOCATION ${folder}/lib${arg_NAME}.a
    INTERFACE_INCLUDE_DIRECTORIES ${folder}/include)
endmacro()

# The library `target` of C sources.
macro(crtexport_add_sources target)
  add_library(${target} STATIC EXCLUDE_FROM_ALL ${ARGN})
  target_link_libraries(${target} PRIVATE zephyr_interface PUBLIC ${arg_LIBRARIES})
  target_include_directories(${target} PUBLIC ${folder}/include)
  set(levels size -Os compact -Os balanced -O2 speed -O3)
  list(FIND levels "${arg_OPTIMIZE}" index)
  math(EXPR index "${index} + 1")
  list(GET levels ${index} level)
  # Not fused: sums of products must round as on every other machine.
  target_compile_options(${target} PRIVATE ${level} -ffp-contract=off)
  # Loads and multiplications that GCC moves ahead would drive sums out of registers there.
  if(CONFIG_RISCV AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE -fno-schedule-insns)
  endif()
  if(arg_SECTION)
    # Of all models of the package, where it has several.
    file(GLOB headers RELATIVE ${folder}/include ${folder}/include/tvmgen_*.h)
    foreach(header IN LISTS headers ITEMS tvmgen_${arg_NAME}.h)
      string(REGEX REPLACE "\\.h$" "_WORKSPACE_ATTR" attribute ${header})
      string(TOUPPER ${attribute} attribute)
      target_compile_definitions(${target} PRIVATE
        "${attribute}=__attribute__((section(\"${arg_SECTION}\")))")
    endforeach()
  endif()
endmacro()
