# cmake -DAR= -DOBJCOPY= -DNAME= -DFOLDER= -DARCHIVE= -DSECTION= -P crtexport_archive.cmake
# Archives FOLDER/lib/*.o. With SECTION, a static workspace goes there.
file(GLOB objects ${FOLDER}/lib/*.o)
list(SORT objects)
if(SECTION)
  file(MAKE_DIRECTORY ${FOLDER}/placed)
  set(placed)
  foreach(object IN LISTS objects)
    get_filename_component(name ${object} NAME)
    execute_process(
      COMMAND ${OBJCOPY} --rename-section .bss.tvmgen_${NAME}.workspace=${SECTION}
        ${object} ${FOLDER}/placed/${name}
      RESULT_VARIABLE status)
    if(NOT status EQUAL 0)
      message(FATAL_ERROR "the workspace of ${NAME} can't be moved to ${SECTION}")
    endif()
    list(APPEND placed ${FOLDER}/placed/${name})
  endforeach()
  set(objects ${placed})
endif()
# Without times and owners, so that equal objects make equal archives; made anew, so that nothing
# of an earlier export stays in.
file(REMOVE ${ARCHIVE})
execute_process(COMMAND ${AR} qcD ${ARCHIVE} ${objects} RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "the objects of ${NAME} can't be archived")
endif()
execute_process(COMMAND ${AR} sD ${ARCHIVE} RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "the objects of ${NAME} can't be indexed")
endif()
