#include "trace/trace-idletime_resource.h"
