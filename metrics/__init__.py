"""Every metric of the project, named once. Names and labels are API."""
