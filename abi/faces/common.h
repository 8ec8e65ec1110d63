/* What the libraries of all other ABIs share: functions that users supply, and the tools interface, whose types are the same
 * but for the handles in them. Included by mpi.h of each ABI, behind its own types. */

typedef void(MPI_User_function)(void *, void *, int *, MPI_Datatype *);
typedef void(MPI_User_function_c)(void *, void *, MPI_Count *, MPI_Datatype *);
typedef int(MPI_Grequest_query_function)(void *, MPI_Status *);
typedef int(MPI_Grequest_free_function)(void *);
typedef int(MPI_Grequest_cancel_function)(void *, int);
typedef int(MPI_Comm_copy_attr_function)(MPI_Comm, int, void *, void *, void *, int *);
typedef int(MPI_Comm_delete_attr_function)(MPI_Comm, int, void *, void *);
typedef int(MPI_Type_copy_attr_function)(MPI_Datatype, int, void *, void *, void *, int *);
typedef int(MPI_Type_delete_attr_function)(MPI_Datatype, int, void *, void *);
typedef int(MPI_Win_copy_attr_function)(MPI_Win, int, void *, void *, void *, int *);
typedef int(MPI_Win_delete_attr_function)(MPI_Win, int, void *, void *);
typedef MPI_Comm_copy_attr_function MPI_Copy_function;
typedef MPI_Comm_delete_attr_function MPI_Delete_function;
typedef void(MPI_Comm_errhandler_function)(MPI_Comm *, int *, ...);
typedef void(MPI_Win_errhandler_function)(MPI_Win *, int *, ...);
typedef void(MPI_File_errhandler_function)(MPI_File *, int *, ...);
typedef void(MPI_Session_errhandler_function)(MPI_Session *, int *, ...);
typedef void(MPI_Handler_function)(MPI_Comm *, int *, ...);
typedef int(MPI_Datarep_extent_function)(MPI_Datatype, MPI_Aint *, void *);
typedef int(MPI_Datarep_conversion_function)(void *, MPI_Datatype, int, void *, MPI_Offset, void *);
typedef int(MPI_Datarep_conversion_function_c)(void *, MPI_Datatype, MPI_Count, void *, MPI_Offset, void *);
#define MPI_CONVERSION_FN_NULL ((MPI_Datarep_conversion_function *)0)
#define MPI_CONVERSION_FN_NULL_C ((MPI_Datarep_conversion_function_c *)0)
typedef void(MPIX_Destructor_function)(void *);
typedef void(MPIX_User_function_x)(void *, void *, MPI_Count, MPI_Datatype, void *);
typedef void(MPIX_Comm_errhandler_function_x)(MPI_Comm, int, void *);
typedef void(MPIX_Win_errhandler_function_x)(MPI_Win, int, void *);
typedef void(MPIX_File_errhandler_function_x)(MPI_File, int, void *);
typedef void(MPIX_Session_errhandler_function_x)(MPI_Session, int, void *);

/* Handles of the tools interface are addresses in all ABIs, and values of the same library. */
typedef struct margay_t_enum *MPI_T_enum;
typedef struct margay_t_cvar_handle *MPI_T_cvar_handle;
typedef struct margay_t_pvar_handle *MPI_T_pvar_handle;
typedef struct margay_t_pvar_session *MPI_T_pvar_session;
typedef struct margay_t_event_registration *MPI_T_event_registration;
typedef struct margay_t_event_instance *MPI_T_event_instance;
typedef int MPI_T_cb_safety;
typedef int MPI_T_source_order;
typedef void(MPI_T_event_cb_function)(MPI_T_event_instance, MPI_T_event_registration, MPI_T_cb_safety, void *);
typedef void(MPI_T_event_free_cb_function)(MPI_T_event_registration, MPI_T_cb_safety, void *);
typedef void(MPI_T_event_dropped_cb_function)(MPI_Count, MPI_T_event_registration, int, MPI_T_cb_safety, void *);

/* Between C and Fortran. */
#define MARGAY_FACE_INTEGERS(kind, type)                                                                               \
    MPI_Fint MPI_##kind##_c2f(type handle), PMPI_##kind##_c2f(type handle);                                            \
    type MPI_##kind##_f2c(MPI_Fint integer), PMPI_##kind##_f2c(MPI_Fint integer);
MARGAY_FACE_INTEGERS(Comm, MPI_Comm)
MARGAY_FACE_INTEGERS(Errhandler, MPI_Errhandler)
MARGAY_FACE_INTEGERS(File, MPI_File)
MARGAY_FACE_INTEGERS(Group, MPI_Group)
MARGAY_FACE_INTEGERS(Info, MPI_Info)
MARGAY_FACE_INTEGERS(Message, MPI_Message)
MARGAY_FACE_INTEGERS(Op, MPI_Op)
MARGAY_FACE_INTEGERS(Request, MPI_Request)
MARGAY_FACE_INTEGERS(Session, MPI_Session)
MARGAY_FACE_INTEGERS(Type, MPI_Datatype)
MARGAY_FACE_INTEGERS(Win, MPI_Win)

/* A status has the same form in C, in Fortran and in mpi_f08. */
typedef MPI_Status MPI_F08_status;
extern MPI_Fint *MPI_F_STATUS_IGNORE, *MPI_F_STATUSES_IGNORE;
extern MPI_F08_status *MPI_F08_STATUS_IGNORE, *MPI_F08_STATUSES_IGNORE;
